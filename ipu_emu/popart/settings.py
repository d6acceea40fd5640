"""Settings: attributes with defaults, where a misspelt name is an error that suggests the right one."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from difflib import get_close_matches
from typing import Any, ClassVar

__all__ = ["Settings"]


class Settings:
    """Base of option objects; ``defaults`` is the table, ``renamed`` maps old names to current ones."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    renamed: ClassVar[Mapping[str, str]] = {}

    def __init__(self, *values: Any, **named: Any) -> None:
        self.__dict__.update(deepcopy(dict(self.defaults)))
        if len(values) > len(self.defaults):
            raise TypeError(
                f"{type(self).__name__} takes at most {len(self.defaults)} values, {len(values)} were given"
            )
        for name, value in [*zip(self.defaults, values, strict=False), *named.items()]:
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[self._known(name)] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "defaults":
            raise AttributeError(name)
        return self.__dict__[self._known(name)]

    def _known(self, name: str) -> str:
        name = self.renamed.get(name, name)
        if name not in self.defaults:
            close = get_close_matches(name, self.defaults, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")
        return name

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        raise TypeError(f"{type(self).__name__} can change, so it cannot be a key")

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.__dict__.items() if repr(value) != repr(self.defaults[name])}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
