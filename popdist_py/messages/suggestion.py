"""Suggestion: the known name that an unknown one is probably a misspelling of."""

from __future__ import annotations

from collections.abc import Iterable


def closest(name: object, names: Iterable[str]) -> str:
    """The one of ``names`` that ``name`` is probably a misspelling of; "" if none is like it."""
    from difflib import get_close_matches  # imported only for a mistake

    by_spelling = {str(known).lower(): str(known) for known in names}
    return "".join(by_spelling[like] for like in get_close_matches(str(name).lower(), by_spelling, 1))


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The end of an error message: ``; did you mean 'mean'?`` if one of ``names`` is like ``name``, else nothing."""
    close = closest(name, names)
    return f"; did you mean '{close}'?" if close else ""
