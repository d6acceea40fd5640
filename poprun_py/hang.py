"""Hang: a Python program that has ended, but whose process waits in MPI_Finalize for the others.

Seen from outside: its process has MPI's library, and no longer catches SIGINT: the interpreter gives the signal back
when it ends, well before it calls MPI_Finalize. Where its last words are a traceback, an exception has ended it;
otherwise nobody can tell sys.exit(3) from a good end, whose wait is as it should be.
"""

from __future__ import annotations

import os
import signal

__all__ = ["LOOK_EVERY", "PATIENCE", "WAITS", "WAIT_EVERY", "hangs"]

#: Seconds between two looks at a program that has printed a traceback, and that it may take to end by itself.
LOOK_EVERY, PATIENCE = 0.25, 1.0

#: Seconds between two looks at any other program, and how many in a row must find it waiting.
WAIT_EVERY, WAITS = 0.5, 3

_MPI = ("libmpi.so", "libmpich.so")


def hangs(pid: int) -> bool:
    """Is ``pid`` a Python whose interpreter has ended, and that has loaded an MPI?"""
    try:
        if not os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python"):
            return False
        with open(f"/proc/{pid}/status") as stream:
            masks = dict(line.rstrip().split(":\t", 1) for line in stream if line.startswith("Sig"))
        if _has(masks["SigCgt"], signal.SIGINT) or _has(masks["SigIgn"], signal.SIGINT):
            return False
        with open(f"/proc/{pid}/maps", errors="replace") as stream:
            return any(name in line for line in stream for name in _MPI)
    except (OSError, KeyError, ValueError):  # it is gone, or not ours
        return False


def _has(mask: str, number: int) -> bool:
    return bool(int(mask, 16) >> (number - 1) & 1)
