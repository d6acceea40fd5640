"""Weight copies: tensors that an engine copies to the host, and their records in a trace."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from popdist_py.trace import Category, Span


class WeightCopy(NamedTuple):
    """A tensor of a local replica that is copied to the host."""

    tensor: str
    replica: int
    nbytes: int


class CopiesRecord(Protocol):
    """Protocol of a recorder of copies; several copies make up one phase, ``what``."""

    def copying(self, what: str, category: Category, copy: WeightCopy) -> Span:
        """A span around a copy."""

    def copied(self, what: str) -> None:
        """All copies of a phase were made."""
