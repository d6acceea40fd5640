"""Variable attributes: which values of an optimiser may change after the model is compiled."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["VariableAttributes"]


class VariableAttributes:
    """Which attributes of a group may change after the model is compiled; all others are constants of the program."""

    def __init__(self, allowed: Iterable[str], variable: Iterable[str]) -> None:
        self._allowed = list(allowed)
        self._variable = {one for one in variable if one in self._allowed}

    def isConstant(self, attr: str) -> bool:
        """Whether the value is fixed when the model is compiled."""
        self._check(attr)
        return attr not in self._variable

    def markAsConstant(self, attr: str) -> None:
        """Fix the value."""
        self._check(attr)
        self._variable.discard(attr)

    def markAsVariable(self, attr: str) -> None:
        """Let ``setOptimizer`` change the value."""
        self._check(attr)
        self._variable.add(attr)

    def _check(self, attr: str) -> None:
        if attr not in self._allowed:
            raise AssertionError(f"Unknown attribute {attr}, allowed values: {self._allowed}")
