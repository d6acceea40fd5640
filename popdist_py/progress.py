"""Progress: the reports of a program on its progress, which the launcher shows while the job runs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING

from popdist_py.environment import REPORT_SOCKET

if TYPE_CHECKING:
    import socket

__all__ = ["Reporter", "report"]

#: Seconds between two messages; samples that are reported in between are added up.
_INTERVAL = 0.1


class Reporter:
    """Sends reports to the supervisor of this instance, if there is one; never blocks, never raises."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._socket = _inherited(environ.get(REPORT_SOCKET, ""))
        self._step, self._samples, self._loss = -1, 0, math.nan
        self._next = -math.inf

    def report(self, step: int | None, samples: int, loss: float | None) -> None:
        """Send a report; see ``report``."""
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
            self._socket.send(f"{self._step} {self._samples} {self._loss!r}".encode())
        except BlockingIOError:
            return  # earlier reports have not been read yet; the next report includes this one
        except OSError:
            self._socket = None


def _inherited(text: str) -> socket.socket | None:
    """The socket ``descriptor:inode``, unless the descriptor is something else in this process."""
    try:
        descriptor, inode = map(int, text.split(":"))
        if os.fstat(descriptor).st_ino != inode:
            return None
        import socket  # slow to import, and only needed where a launcher shows progress

        inherited = socket.socket(fileno=os.dup(descriptor))
    except (ValueError, OSError):
        return None
    inherited.setblocking(False)
    return inherited


@cache
def _reporter() -> Reporter:
    """The reporter of this process: created by the first report, since the process may have inherited no socket.

    One per process, as the inherited socket is, and because ``report`` is called without a handle.
    """
    return Reporter(os.environ)


def report(*, step: int | None = None, samples: int = 0, loss: float | None = None) -> None:
    """Report the progress of this instance to the launcher's live view (--progress).

    ``step`` and ``loss`` replace the values of the last report, ``samples`` is the number processed since then. Each
    instance reports for itself. Call it in every step: at most ten messages a second are sent, and none is waited
    for. Without poprun-py, or without a live view, nothing happens; nothing is ever raised for a lost report.
    """
    _reporter().report(step, samples, loss)
