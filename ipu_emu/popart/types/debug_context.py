"""DebugContext: a name for what the Builder adds; a string is accepted wherever a DebugContext is."""

from __future__ import annotations

__all__ = ["DebugContext"]


class DebugContext(str):
    """A name. Unlike PopART's, it has no source location: Python's tracebacks show that."""

    __slots__ = ()

    def getPathName(self) -> str:
        """The name of the context, with those of its parents."""
        return str(self)
