"""The table of session options: names, types and defaults from the classes, meanings from their docstrings.

The docstring of an option class ends with a section ``Options:``, in which every option has a line ``name: meaning``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import ipu_emu.popart as popart
from docs._ext.package_maps import cell

HEAD = """\
# Session options

The attributes of `popart.SessionOptions` and of the objects that are options themselves, with PopART's names and
defaults. A misspelt name is an error that suggests the right one; a value has to be of the type of the default.
"""


def page() -> str:
    """The page as Markdown."""
    classes = [popart.SessionOptions, *(kind for kind in option_classes() if kind is not popart.SessionOptions)]
    return "\n".join([HEAD, *map(_section, classes)])


def option_classes() -> list[type]:
    """The public option classes of the PopART front end, by name."""
    return [value for name in popart.__all__ if hasattr(value := getattr(popart, name), "defaults")]


def meanings(options: type) -> dict[str, str]:
    """Option -> its meaning, from the docstring of the class."""
    _, _, section = (inspect.getdoc(options) or "").partition("\nOptions:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _section(options: Any) -> str:
    summary = (inspect.getdoc(options) or "").partition("\n\n")[0]
    texts = meanings(options)
    table = "| option | type | default | meaning |\n|---|---|---|---|\n" + "".join(_rows(options.defaults, texts))
    return f"## {options.__name__}\n\n{cell(summary)}\n\n{table}"


def _rows(defaults: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[str]:
    for name, default in defaults.items():
        kind = "any" if default is None else type(default).__name__
        yield f"| `{name}` | `{kind}` | `{_shown(default)}` | {cell(texts.get(name, ''))} |\n"


def _shown(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, set):
        return "{" + ", ".join(_shown(item) for item in value) + "}"
    return repr(value)
