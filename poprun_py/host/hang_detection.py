"""Hang: a Python program that has ended, but whose process waits in MPI_Finalize for the others.

Seen from outside: its process has MPI's library, and no longer catches SIGINT: the interpreter gives the signal back
when it ends, well before it calls MPI_Finalize. Where its last words are a traceback, an exception has ended it;
otherwise nobody can tell sys.exit(3) from a good end, whose wait is as it should be.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from poprun_py.linux import processes
from poprun_py.linux.timers import Alarms
from poprun_py.wire import messages

__all__ = ["HangWatch", "hangs"]

#: Seconds between two looks at a program that has printed a traceback, and that it may take to end by itself.
_LOOK_EVERY, _PATIENCE = 0.25, 1.0

#: Seconds between two looks at any other program, and how many in a row must find it waiting.
_WAIT_EVERY, _WAITS = 0.5, 3

#: Bytes of stderr in which a traceback is looked for.
_LAST_WORDS = 1 << 14

_MPI = ("libmpi.so", "libmpich.so")


class HangWatch:
    """Looks at a program now and then, and tells the launcher when it hangs, or waits for the others."""

    def __init__(self, alarms: Alarms, tell: Callable[[messages.Message], None]) -> None:
        self._alarms, self._tell = alarms, tell
        self._program = 0
        self._last_words = b""

    def start(self, program: int) -> None:
        """Look at the process ``program`` until it has ended."""
        self._program = program
        self._alarms.set(_WAIT_EVERY, self._look_for_wait)

    def stop(self) -> None:
        self._program = 0

    def hear(self, data: bytes) -> None:
        """Remember the last words on stderr, and look what becomes of a program that wrote a traceback."""
        self._last_words = words = (self._last_words + data)[-_LAST_WORDS:]
        if b"Traceback" in words and _is_uncaught(words):
            self._alarms.set(_LOOK_EVERY, lambda: self._look_for_hang(words, _PATIENCE))

    def _look_for_hang(self, words: bytes, patience: float) -> None:
        """Is a program that wrote a traceback last, and nothing since, kept from ending by MPI?"""
        if not self._program or self._last_words != words:
            return
        if not any(map(hangs, (self._program, *processes.descendants(self._program)))):
            patience = _PATIENCE
        elif patience <= 0:
            self._tell(messages.Hung())
            return
        self._alarms.set(_LOOK_EVERY, lambda: self._look_for_hang(words, patience - _LOOK_EVERY))

    def _look_for_wait(self, found: int = 0) -> None:
        """Has the program ended, but waits for the others? Its exit code cannot be known before it goes on."""
        if not self._program:
            return
        found = found + 1 if hangs(self._program) else 0
        if found == _WAITS:
            self._tell(messages.Waiting())
        else:
            self._alarms.set(_WAIT_EVERY, lambda: self._look_for_wait(found))


def _is_uncaught(words: bytes) -> bool:
    from poprun_py.output.uncaught_exception import find_uncaught  # few programs raise: the import takes long

    return find_uncaught(words) is not None


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
