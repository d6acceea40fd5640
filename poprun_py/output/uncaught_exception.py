"""Uncaught exception: the exception that ended a Python program, found at the end of its stderr."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

__all__ = ["Uncaught", "find_uncaught"]

_HEADER = b"Traceback (most recent call last):"

#: Patterns are compiled when an instance has written something: at the import they would delay every job by 2 ms.
_FRAME = rb'(?m)^ +File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$'

#: What follows the last frame: its source line, and then the exception.
_ERROR = rb"(?:\n[ \t].*)*\n(?P<text>[A-Za-z_][\w.]*(?::.*)?)(?:\n|$)"

#: Paths of code that is not the user's own.
_LIBRARY_CODE = rb"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<frozen "

#: Characters that are shown of an exception, how many of them are its last, which often say what to do, and lines (of
#: an MPI, say) that may follow it.
_LONGEST, _LAST, _NEAR_THE_END = 200, 80, 12


@dataclass(frozen=True)
class Uncaught:
    """The exception, and the innermost line of the user's own code in its traceback."""

    error: str
    place: str

    def __str__(self) -> str:
        return f"{self.error} ({self.place})" if self.place else self.error


def find_uncaught(stderr: bytes) -> Uncaught | None:
    """Return the exception (or syntax error) near the end of ``stderr``; None if there is none."""
    frames = list(re.finditer(_FRAME, stderr))
    error = re.compile(_ERROR).match(stderr, frames[-1].end()) if frames else None
    if error is None or stderr.count(b"\n", error.end()) > _NEAR_THE_END:
        return None
    start = stderr.rfind(_HEADER, 0, frames[-1].start())
    own = [frame for frame in frames if frame.start() > start and not re.search(_LIBRARY_CODE, frame["file"])]
    return Uncaught(_text(error["text"]), _place((own or frames)[-1]))


def _place(frame: re.Match[bytes]) -> str:
    """``train.py:12, in load``"""
    function = _text(frame["function"] or b"<module>")
    where = f"{os.path.basename(_text(frame['file']))}:{int(frame['line'])}"
    return where if function == "<module>" else f"{where}, in {function}"


def _text(data: bytes) -> str:
    text = data.decode(errors="replace")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - _LAST - 3]}...{text[-_LAST:]}"
