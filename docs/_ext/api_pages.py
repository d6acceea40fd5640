"""API pages: one page of autodoc directives for each public module, from its ``__all__``."""

from __future__ import annotations

import inspect
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any

#: Public modules in reading order, and the page title of each.
PUBLIC_MODULES: dict[str, str] = {
    "popdist_py": "popdist_py: the identity of an instance",
    "popdist_py.popart": "popdist_py.popart: a PopART session under the launcher",
    "gcl": "gcl: collectives",
    "ipu_emu.popart": "ipu_emu.popart: the PopART API",
    "ipu_emu.hostio": "ipu_emu.hostio: feeds",
    "ipu_emu.hostio.checkpoint": "ipu_emu.hostio.checkpoint: checkpoints",
    "ipu_emu.hardware": "ipu_emu.hardware: systems, IPUs and Streaming Memory",
    "ipu_emu.models": "ipu_emu.models: networks by name",
    "ipu_emu.program.clock": "ipu_emu.program.clock: modelled time",
    "ipu_emu.predict": "ipu_emu.predict: predictions without a graph",
    "ipu_emu.tensorflow": "ipu_emu.tensorflow: queues and pipeline calls of TensorFlow",
}

_ORDER = ("Functions", "Classes", "Enumerations", "Options", "Exceptions", "Constants")


def kind_of(value: Any) -> str:
    """The heading under which a public name is listed."""
    if not inspect.isclass(value):
        return "Functions" if inspect.isroutine(value) else "Constants"
    if issubclass(value, BaseException):
        return "Exceptions"
    if issubclass(value, Enum):
        return "Enumerations"
    return "Options" if hasattr(value, "defaults") else "Classes"


def page(path: str) -> str:
    """The page of one public module as reStructuredText."""
    module = import_module(path)
    parts = [_heading(PUBLIC_MODULES[path], "="), f".. automodule:: {path}\n   :no-members:\n"]
    for kind in _ORDER:
        names = [name for name in module.__all__ if kind_of(getattr(module, name)) == kind]
        if names:
            parts.append(_heading(kind, "-"))
            parts += [_directive(module, name, kind) for name in names]
    return "\n".join(parts)


def _directive(module: ModuleType, name: str, kind: str) -> str:
    full = f"{module.__name__}.{name}"
    value = getattr(module, name)
    if kind == "Functions":
        return f".. autofunction:: {full}\n"
    if kind == "Constants" or value.__name__ != name:  # another name of a class is shown as what it is
        return f".. autodata:: {full}\n   :no-value:\n" if kind == "Constants" else f".. autodata:: {full}\n"
    if kind == "Enumerations":
        members = ", ".join(f"``{member}``" for member in value.__members__)
        return f".. autoclass:: {full}\n   :no-members:\n\n   Members: {members}\n"
    if kind == "Options":
        where = "Its options are in the :doc:`table of options <../session-options>`."
        return f".. autoclass:: {full}\n   :members:\n\n   {where}\n"
    if kind == "Exceptions":
        return f".. autoexception:: {full}\n   :show-inheritance:\n"
    return f".. autoclass:: {full}\n   :members:\n   :inherited-members: {_bases_outside(value)}\n"


def _bases_outside(value: type) -> str:
    """Base classes whose members are not ours to document."""
    return ", ".join(
        base.__name__
        for base in value.__mro__
        if base.__module__.split(".")[0] not in ("gcl", "ipu_emu", "popdist_py")
    )


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"
