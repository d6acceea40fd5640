"""Progress: what a program tells the launcher of how far it is, for those who watch the job."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from time import monotonic

from popdist_py.environment import REPORT_SOCKET

__all__ = ["Reporter", "report"]

#: Seconds between two messages; what is said meanwhile is added up.
_INTERVAL = 0.1


class Reporter:
    """Sends reports to the supervisor of this instance; without one, does nothing. Never blocks, never fails."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._socket = _inherited(environ.get(REPORT_SOCKET, ""))
        self._step, self._samples, self._loss = -1, 0, math.nan
        self._next = -math.inf

    def report(self, step: int | None, samples: int, loss: float | None) -> None:
        if self._socket is None:
            return
        self._step = self._step if step is None else int(step)
        self._loss = self._loss if loss is None else float(loss)
        self._samples += int(samples)
        now = monotonic()
        if now < self._next:
            return
        self._next = now + _INTERVAL
        try:
            self._socket.send(f"{self._step} {self._samples} {self._loss!r}".encode(), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # nobody has read the last ones yet; the next one says it all
        except OSError:
            self._socket = None


def _inherited(text: str) -> socket.socket | None:
    """The socket ``descriptor:inode``, if that is still what this process has there."""
    try:
        descriptor, inode = map(int, text.split(":"))
        if os.fstat(descriptor).st_ino == inode:
            return socket.socket(fileno=os.dup(descriptor))
    except (ValueError, OSError):
        return None
    return None


#: The process's one reporter: made at the first report, which may be in a child that has not inherited the socket.
_reporter: list[Reporter] = []


def report(*, step: int | None = None, samples: int = 0, loss: float | None = None) -> None:
    """Tell whoever watches the job: the step, samples done since the last report, the loss.

    Cheap enough for every step: at most ten messages a second leave, and none is waited for. Without poprun-py, or
    when nobody watches, nothing happens.
    """
    if not _reporter:
        _reporter.append(Reporter(os.environ))
    _reporter[0].report(step, samples, loss)
