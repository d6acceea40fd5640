"""Suggestion: the known name that an unknown one is probably a misspelling of."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The end of an error message: ``; did you mean 'mean'?`` if one of ``names`` is like ``name``, else nothing."""
    from difflib import get_close_matches  # imported only for a mistake

    by_spelling = {str(known).lower(): str(known) for known in names}
    close = get_close_matches(str(name).lower(), by_spelling, 1)
    return f"; did you mean '{by_spelling[close[0]]}'?" if close else ""
