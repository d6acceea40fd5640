"""Hang detection: Python programs that have ended, but whose processes wait in MPI_Finalize for other instances.

From outside, such a process has loaded the MPI library and no longer catches SIGINT: the interpreter restores the
default action when it ends, well before it calls MPI_Finalize. If a traceback is the last that it wrote to stderr, an
exception ended the program. Otherwise sys.exit(3) cannot be distinguished from a normal end, after which waiting is
correct.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from poprun_py.linux import processes
from poprun_py.linux.event_sources import Timers
from poprun_py.wire import messages

#: Seconds between two checks of a program that has printed a traceback, and that it has to end by itself.
_HANG_CHECK_INTERVAL, _HANG_TIMEOUT = 0.25, 1.0

#: Seconds between two checks of any other program, and how many in a row must find it waiting.
_WAIT_CHECK_INTERVAL, _WAIT_CHECKS = 0.5, 3

#: Bytes at the end of stderr that are searched for a traceback.
_TAIL = 1 << 14

_MPI = ("libmpi.so", "libmpich.so")


class HangDetector:
    """Checks a program at intervals, and notifies the launcher when it hangs after an exception, or waits."""

    def __init__(self, timers: Timers, send: Callable[[messages.Message], None]) -> None:
        self._timers, self._send = timers, send
        self._program = 0
        self._tail = b""

    def start(self, program: int) -> None:
        """Check the process ``program`` until ``stop``."""
        self._program = program
        self._timers.call_later(_WAIT_CHECK_INTERVAL, self._check_for_wait)

    def stop(self) -> None:
        self._program = 0

    def on_stderr(self, data: bytes) -> None:
        """Keep the end of stderr; if that is a traceback, check whether the program hangs."""
        self._tail = tail = (self._tail + data)[-_TAIL:]
        if b"Traceback" not in tail:
            return
        from poprun_py.output.uncaught_exception import find_uncaught  # slow to import, and rarely needed

        if find_uncaught(tail):
            self._timers.call_later(_HANG_CHECK_INTERVAL, lambda: self._check_for_hang(tail, _HANG_TIMEOUT))

    def _check_for_hang(self, tail: bytes, timeout: float) -> None:
        """Send Hung if MPI keeps a program whose last output was the traceback ``tail`` from ending."""
        if not self._program or self._tail != tail:
            return
        if not any(map(has_ended_but_waits, (self._program, *processes.descendants(self._program)))):
            timeout = _HANG_TIMEOUT
        elif timeout <= 0:
            self._send(messages.Hung())
            return
        self._timers.call_later(
            _HANG_CHECK_INTERVAL, lambda: self._check_for_hang(tail, timeout - _HANG_CHECK_INTERVAL)
        )

    def _check_for_wait(self, checks: int = 0) -> None:
        """Send Waiting if the program has ended but waits for the others; its exit code is unknown until then."""
        if not self._program:
            return
        checks = checks + 1 if has_ended_but_waits(self._program) else 0
        if checks == _WAIT_CHECKS:
            self._send(messages.Waiting())
        else:
            self._timers.call_later(_WAIT_CHECK_INTERVAL, lambda: self._check_for_wait(checks))


def has_ended_but_waits(pid: int) -> bool:
    """Whether ``pid`` is a Python process with an MPI library whose interpreter has ended."""
    try:
        if not os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python"):
            return False
        with open(f"/proc/{pid}/status") as stream:
            masks = dict(line.rstrip().split(":\t", 1) for line in stream if line.startswith("Sig"))
        if _has(masks["SigCgt"], signal.SIGINT) or _has(masks["SigIgn"], signal.SIGINT):
            return False
        with open(f"/proc/{pid}/maps", errors="replace") as stream:
            return any(name in line for line in stream for name in _MPI)
    except (OSError, KeyError, ValueError):  # the process is gone, or another user's
        return False


def _has(mask: str, number: int) -> bool:
    return bool(int(mask, 16) >> (number - 1) & 1)
