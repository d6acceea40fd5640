"""PopART options: session options and patterns that a program sets by name."""

from __future__ import annotations

from typing import Any

from ipu_emu.poptorch.options.option_group import OptionGroup

__all__ = ["_PopartOptions"]


class _PopartOptions(OptionGroup):
    """``options._Popart``; they take effect, and wrong ones raise an error, when a model is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self._options: dict[str, Any] = {}
        self._patterns: dict[str, bool] = {}
        self._level = 2

    @property
    def options(self) -> dict[str, Any]:
        """The values of session options by key."""
        return self._options

    def set(self, key: str = "", value: Any = None, **values: Any) -> _PopartOptions:
        """Set one session option; nested ones have dots in their keys."""
        self.checkIsFrozen()
        if not key or values:
            raise TypeError("_Popart.set takes the name of a session option and its value")
        self._options[key] = value
        return self

    def setEngineOptions(self, options: dict[str, Any]) -> _PopartOptions:
        """Set options of the engine."""
        return self.set("engineOptions", dict(options))

    def setPatterns(self, patterns: dict[str, bool], level: int = 2) -> _PopartOptions:
        """Choose the patterns of the compiler by name, at level 0 (none) to 3 (all); they do not affect results."""
        self.checkIsFrozen()
        if level not in range(4):
            raise ValueError(f"Invalid patterns level {level}; use 0, 1, 2 or 3")
        self._patterns, self._level = dict(patterns), level
        return self

    def __repr__(self) -> str:
        return f"PopartOptions({self.options!r})"
