"""Settings: attributes with defaults; the error for a misspelt name suggests the right one.

A value must be of the type of its default, as in PopART.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from enum import Enum
from operator import index
from os import PathLike
from typing import Any, ClassVar, SupportsFloat, SupportsIndex

import numpy as np

from ipu_emu.errors import ArgumentTypeError
from popdist_py.messages.suggestion import did_you_mean

#: The accepted types by type of the default; for other types, the type itself.
_TAKES: Mapping[type, tuple[Any, str]] = {
    type(None): (object, "anything"),
    bool: ((bool, np.bool_, SupportsIndex, type(None)), "True or False"),
    int: (SupportsIndex, "an integer"),
    float: (SupportsFloat, "a number"),
    str: ((str, PathLike), "a text"),
    list: (Iterable, "a list"),
    set: (Iterable, "a set"),
    dict: (Mapping, "a dict"),
}
#: Types of values that cannot change.
_FIXED = (bool, int, float, str, Enum, type(None))
#: The Python type to which a number from any package is converted.
_KEPT: Mapping[type, Callable[[Any], Any]] = {bool: bool, int: index, float: float}


def _copied(values: Mapping[str, Any], memory: dict[int, Any] | None = None) -> dict[str, Any]:
    """Deep copies of ``values``; those that cannot change are shared."""
    return {name: value if isinstance(value, _FIXED) else deepcopy(value, memory) for name, value in values.items()}


class Settings:
    """Base of option objects; ``defaults`` is the table, ``renamed`` maps old names to current ones.

    Options ``without_effect`` are stored, and named in a warning when they are used.
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    without_effect: ClassVar[frozenset[str]] = frozenset()
    renamed: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *values: Any, **named: Any) -> None:
        self.__dict__.update(_copied(self.defaults))
        if len(values) > len(self.defaults):
            raise TypeError(
                f"{type(self).__name__} takes at most {len(self.defaults)} values, {len(values)} were given"
            )
        for name, value in [*zip(self.defaults, values, strict=False), *named.items()]:
            setattr(self, name, value)

    def __deepcopy__(self, memory: dict[int, Any]) -> Settings:
        copied = memory[id(self)] = object.__new__(type(self))
        copied.__dict__.update(_copied(self.__dict__, memory))
        return copied

    def __setattr__(self, name: str, value: Any) -> None:
        name = self._known(name)
        kind = type(self.defaults[name])
        takes, what = _TAKES.get(kind, (kind, f"a {kind.__name__}"))
        if not isinstance(value, takes) or (isinstance(value, str) and kind in (list, set)):
            raise ArgumentTypeError(f"{type(self).__name__}.{name} is {value!r}; it must be {what}")
        self.__dict__[name] = _KEPT[kind](value) if kind in _KEPT else value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "defaults":
            raise AttributeError(name)
        return self.__dict__[self._known(name)]

    def _known(self, name: str) -> str:
        name = self.renamed.get(name, name)
        if name not in self.defaults:
            hint = did_you_mean(name, self.defaults)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")
        return name

    def changed_without_effect(self) -> list[str]:
        """Return the options without effect that differ from their defaults."""
        names = []
        for name, default in self.defaults.items():
            value = self.__dict__[name]
            if isinstance(value, Settings):
                names += [f"{name}.{inner}" for inner in value.changed_without_effect()]
            elif name in self.without_effect and repr(value) != repr(default):
                names.append(name)
        return names

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        raise TypeError(f"{type(self).__name__} is mutable, so it cannot be a key")

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.__dict__.items() if repr(value) != repr(self.defaults[name])}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
