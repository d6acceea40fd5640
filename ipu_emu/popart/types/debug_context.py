"""DebugContext and DebugInfo: names of the Builder's tensors and ops; a string is accepted as a DebugContext."""

from __future__ import annotations

from itertools import count
from typing import Any

_IDS = count(1)


class DebugContext(str):
    """``()``, ``(name[, loc])`` or ``(debugInfo, name[, loc])``: a name, below that of its DebugInfo.

    Unlike PopART's, it has no source location; Python's tracebacks have it.
    """

    __slots__ = ()

    def __new__(cls, *values: Any, **named: Any) -> DebugContext:
        """Join the name to that of the parent."""
        arguments = [*values, *named.values()]
        parent = next((value for value in arguments if isinstance(value, DebugInfo)), None)
        name = next((value for value in arguments if isinstance(value, str)), "")
        above = "" if parent is None else parent.getPathName()
        return super().__new__(cls, f"{above}/{name}" if above and name else above or name)

    def getPathName(self) -> str:
        """The name of the context, with those of its parents."""
        return str(self)


class DebugInfo:
    """``DebugInfo(debugContext, layer)``: values that describe one call; contexts made from it are below it."""

    def __init__(self, debugContext: DebugContext | str, layer: str) -> None:
        self._context, self.layer = DebugContext(debugContext), str(layer)
        self._id = next(_IDS)
        self.values: dict[str, Any] = {}

    def setValue(self, name: str, value: Any) -> bool:
        """Add a value to the description; return whether the name is new."""
        new = name not in self.values
        self.values.setdefault(name, value)
        return new

    def getId(self) -> int:
        """The number of this description in the process."""
        return self._id

    def getPathName(self) -> str:
        """The name of its context."""
        return self._context.getPathName()
