"""Uncaught exception: the exception that ended a Python program, found at the end of its stderr."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_HEADER = b"Traceback (most recent call last):"

#: Patterns are compiled when an instance has written something: at the import they would delay every job by 2 ms.
_FRAME = rb'(?m)^ +File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$'

#: What follows the last frame: its source line, and then the exception.
_ERROR = rb"(?:\n[ \t].*)*\n(?P<text>[A-Za-z_][\w.]*(?::.*)?)(?:\n|$)"

#: What PyTorch writes before each line of a traceback.
_RANK = rb"(?m)^\[rank\d+\]: ?"

#: The start of an ExceptionGroup, lines between its parts, what is before all other lines, and the count of parts.
_GROUP, _DIVIDER = rb"(?m)^  \+ Exception Group Traceback", rb"(?m)^ +\+-[+-]*(?: \S+ -+)?$"
_BAR, _COUNT = rb"(?m)^ +[|+] ", r"\(\d+ sub-exceptions?\)$"

#: Paths of code that is not the user's own.
_LIBRARY_CODE = rb"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<frozen "

#: Characters that are shown of an exception, how many of them are its last, which often say what to do, and lines (of
#: an MPI, say) that may follow it.
_LONGEST, _LAST, _NEAR_THE_END = 200, 80, 12


@dataclass(frozen=True)
class Uncaught:
    """The exception, and the innermost line of the user's own code in its traceback."""

    error: str
    location: str

    def __str__(self) -> str:
        return f"{self.error} ({self.location})" if self.location else self.error


def find_uncaught(stderr: bytes) -> Uncaught | None:
    """Return the exception (or syntax error) near the end of ``stderr``; None if there is none.

    Of an ExceptionGroup, its first part is shown too.
    """
    plain = re.sub(_RANK, b"", stderr)
    groups = list(re.finditer(_GROUP, plain))
    return (_last_group(plain[groups[-1].start() :]) if groups else None) or _last_exception(plain)


def _last_group(text: bytes) -> Uncaught | None:
    """The ExceptionGroup at the start of ``text``, unless much follows it."""
    *parts, after = (re.sub(_BAR, b"", part) for part in re.split(_DIVIDER, text))
    outer = _last_exception(parts[0]) if parts else None
    if outer is None or after.count(b"\n") > _NEAR_THE_END:
        return None
    errors, location = [outer.error], outer.location
    for part in parts[1:]:
        if not re.search(_COUNT, errors[-1]):
            break
        inner = _last_exception(part)
        errors.append(inner.error if inner else _text(part.strip().split(b"\n")[0]))
        location = inner.location if inner else location
    return _last_exception(after) or Uncaught(": ".join(errors), location)


def _last_exception(stderr: bytes) -> Uncaught | None:
    frames = list(re.finditer(_FRAME, stderr))
    error = re.compile(_ERROR).match(stderr, frames[-1].end()) if frames else None
    if error is None or stderr.count(b"\n", error.end()) > _NEAR_THE_END:
        return None
    start = stderr.rfind(_HEADER, 0, frames[-1].start())
    own = [frame for frame in frames if frame.start() > start and not re.search(_LIBRARY_CODE, frame["file"])]
    return Uncaught(_text(error["text"]), _location((own or frames)[-1]))


def _location(frame: re.Match[bytes]) -> str:
    """``train.py:12, in load``"""
    function = _text(frame["function"] or b"<module>")
    where = f"{os.path.basename(_text(frame['file']))}:{int(frame['line'])}"
    return where if function == "<module>" else f"{where}, in {function}"


def _text(data: bytes) -> str:
    text = data.decode(errors="replace")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - _LAST - 3]}...{text[-_LAST:]}"
