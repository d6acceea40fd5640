"""Words: how the value of an option is read; each reader raises ValueError saying what was expected."""

from __future__ import annotations

__all__ = ["boolean", "count", "index", "seconds", "text"]

_BOOLEANS = {
    **dict.fromkeys(("yes", "on", "true", "1"), True),
    **dict.fromkeys(("no", "off", "false", "0"), False),
}


def boolean(word: str) -> bool:
    """``yes``, ``on``, ``true``, ``1`` or their opposites, in any letter case."""
    if word.lower() not in _BOOLEANS:
        raise ValueError("yes or no is expected")
    return _BOOLEANS[word.lower()]


def count(word: str) -> int:
    """A whole number, 1 or more."""
    value = _whole(word)
    if value < 1:
        raise ValueError("at least 1 is needed")
    return value


def index(word: str) -> int:
    """A whole number, 0 or more."""
    value = _whole(word)
    if value < 0:
        raise ValueError("counting starts at 0")
    return value


def seconds(word: str) -> float:
    """A duration in seconds, 0 or more."""
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise ValueError("a number of seconds is expected")
    return value


def text(word: str) -> str:
    """Anything but nothing."""
    if not word:
        raise ValueError("a value is needed")
    return word


def _whole(word: str) -> int:
    if not (word.isascii() and word.removeprefix("-").isdigit()) or len(word) > 9:
        raise ValueError("a whole number is expected")
    return int(word)
