"""untyped: returns values as Any, for calls that type checkers reject."""

from __future__ import annotations

from typing import Any

__all__ = ["ANY"]


class _Any:
    """``ANY[x]``: x, with the type Any."""

    def __getitem__(self, value: object) -> Any:
        return value


ANY = _Any()
