"""Values: the functions that read the value of an option; each raises ValueError saying what is expected."""

from __future__ import annotations

from collections.abc import Callable

_BOOLEANS = {
    **dict.fromkeys(("yes", "on", "true", "1"), True),
    **dict.fromkeys(("no", "off", "false", "0"), False),
}

_MOST_DIGITS = 9


def boolean(word: str) -> bool:
    """Read ``yes``, ``on``, ``true``, ``1`` or their opposites, in any letter case."""
    if word.lower() not in _BOOLEANS:
        raise ValueError("yes or no is expected")
    return _BOOLEANS[word.lower()]


def choice(*names: str) -> Callable[[str], str]:
    """Return a reader for one of ``names``, in any letter case."""

    def read(word: str) -> str:
        if word.lower() not in names:
            raise ValueError(f"{', '.join(names[:-1])} or {names[-1]} is expected")
        return word.lower()

    return read


def _whole(numbers: range, expected: str) -> Callable[[str], int]:
    """Return a reader for one of ``numbers``; of any other it says what is ``expected``."""

    def read(word: str) -> int:
        if not (word.isascii() and word.removeprefix("-").isdigit()):
            raise ValueError("a whole number is expected")
        if len(word) > _MOST_DIGITS:
            raise ValueError(f"a number of at most {_MOST_DIGITS} digits is expected")
        if int(word) not in numbers:
            raise ValueError(expected)
        return int(word)

    return read


count = _whole(range(1, 10**_MOST_DIGITS), "at least 1 is needed")
index = _whole(range(10**_MOST_DIGITS), "counting starts at 0")
port = _whole(range(1, 65536), "a port is a number from 1 to 65535")


def seconds(word: str) -> float:
    """Read a duration in seconds, 0 or more."""
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise ValueError("a number of seconds is expected")
    return value


def shell_words(word: str) -> tuple[str, ...]:
    """Split a string into words as a shell does."""
    import shlex  # only needed for options of mpirun

    try:
        return tuple(shlex.split(word))
    except ValueError:
        raise ValueError("a quotation mark is not closed; words are expected as in a shell") from None


def local_words(word: str) -> tuple[int, tuple[str, ...]]:
    """Read ``0:-x A=B``: the index of an instance, and the options for it."""
    number, colon, rest = word.partition(":")
    if not colon:
        raise ValueError("the index of an instance, a colon and the options are expected")
    return index(number.strip()), shell_words(rest)


def text(word: str) -> str:
    """Read any text that is not empty and has no NUL, which no file name, host or variable can contain."""
    if not word:
        raise ValueError("a value is needed")
    if "\0" in word:
        raise ValueError("a value without NUL is needed")
    return word
