"""Hidden values: overwrites the values of NAME=VALUE in this process's command line, which other users could read."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Iterable, Iterator

#: The addresses of the start and the end of the command line, fields of /proc/PID/stat counted from the state.
_ARGUMENTS = slice(45, 47)

#: Characters with a special meaning for a shell: with any of them, words are not written literally.
_QUOTING = frozenset(b"\"'\\")


def hide_values(assignments: Iterable[tuple[str, str]]) -> None:
    """Overwrite the values in the command line of this process, also where they are quoted within an argument."""
    try:
        with open("/proc/self/stat", "rb") as stream:
            begin, end = map(int, stream.read().rpartition(b")")[2].split()[_ARGUMENTS])
    except (OSError, ValueError):
        return
    written = {os.fsencode(f"{name}={value}") for name, value in assignments if value}
    for start, length in places_of(written, ctypes.string_at(begin, end - begin)):
        ctypes.memset(begin + start, ord("*"), length)


def places_of(assignments: Collection[bytes], line: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and length of the values in a command line, whose arguments end with a zero byte."""
    for assignment in assignments:
        value = assignment.index(b"=") + 1
        start = line.find(assignment)
        while start >= 0:
            yield start + value, len(assignment) - value
            start = line.find(assignment, start + len(assignment))
    start = 0
    for argument in line.split(b"\0") if assignments and _QUOTING & {*line} else ():
        for first, last in _words(argument) if _QUOTING & {*argument} else ():
            if _meant(argument[first:last]) in assignments:
                value = first + argument[first:last].index(b"=") + 1
                yield start + value, last - value
        start += len(argument) + 1


def _words(argument: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of the words of an argument, divided as in a shell; none if a quotation mark is not closed."""
    import re  # as shlex: only needed for options of mpirun

    word = rb"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+"""
    yield from (match.span() for match in re.finditer(word, argument, re.DOTALL))


def _meant(word: bytes) -> bytes:
    """A word as a shell would expand it."""
    import shlex

    try:
        return "".join(shlex.split(word.decode("latin-1"))).encode("latin-1")
    except ValueError:
        return b""
