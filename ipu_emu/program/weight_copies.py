"""Weight copies: tensors that an engine copies to the host, and what a trace records about each."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from popdist_py.trace import Category, Span

__all__ = ["CopiesRecord", "WeightCopy"]


class WeightCopy(NamedTuple):
    """A tensor of a local replica that is copied to the host."""

    tensor: str
    replica: int
    nbytes: int


class CopiesRecord(Protocol):
    """Protocol of what records copies; several make up one phase, ``what``."""

    def copying(self, what: str, category: Category, copy: WeightCopy) -> Span:
        """A span around a copy."""

    def copied(self, what: str) -> None:
        """All copies of a phase were made."""
