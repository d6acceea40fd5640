"""Hang: the sign of a Python program that has failed but cannot end, because MPI_Finalize waits for the others."""

from __future__ import annotations

import re

__all__ = ["HINT", "HINT_AFTER", "has_raised"]

#: Seconds of silence after a traceback until the user is told what that may mean.
HINT_AFTER = 5.0

HINT = (
    "has printed a traceback and not ended since; an exception does not end a program that waits in MPI_Finalize: "
    "call popdist_py.init(), or run it as python -m mpi4py PROGRAM"
)

#: A traceback and nothing behind it: indented lines, then the exception and its message.
_TRACEBACK = re.compile(rb"Traceback \(most recent call last\):\n(?:[ \t].*\n)+\w[\w.]*(?::.*)?\n?$")


def has_raised(stderr: bytes) -> bool:
    """Does what a program wrote last look like an exception that nobody caught?"""
    start = stderr.rfind(b"Traceback (most recent call last):")
    return start >= 0 and _TRACEBACK.match(stderr, start) is not None
