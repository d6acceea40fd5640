"""Progress: the reports of a program on its progress, which the launcher shows while the job runs."""

from __future__ import annotations

import math
from functools import cache
from time import monotonic

from popdist_py.supervisor_socket import SupervisorSocket, supervisor_socket

#: Seconds between two messages; samples that are reported in between are added up.
_INTERVAL = 0.1


class Reporter:
    """Sends reports to the supervisor of this instance, if there is one; never blocks, never raises."""

    def __init__(self, socket: SupervisorSocket) -> None:
        self._socket = socket
        self._step, self._samples, self._loss = -1, 0, math.nan
        self._next = -math.inf

    def report(self, step: int | None, samples: int, loss: float | None) -> None:
        """Send a report; see ``report``. If earlier ones have not been read yet, the next includes this one."""
        if not self._socket.is_open:
            return
        self._step = self._step if step is None else int(step)
        self._loss = self._loss if loss is None else float(loss)
        self._samples += int(samples)
        now = monotonic()
        if now >= self._next:
            self._next = now + _INTERVAL
            self._socket.send(f"progress {self._step} {self._samples} {self._loss!r}")


@cache
def _reporter() -> Reporter:
    """The reporter of this process: one, because ``report`` is called without a handle."""
    return Reporter(supervisor_socket())


def report(*, step: int | None = None, samples: int = 0, loss: float | None = None) -> None:
    """Report the progress of this instance to the launcher's live view (--progress).

    ``step`` and ``loss`` replace the values of the last report, ``samples`` is the number processed since then. Each
    instance reports for itself. Call it in every step: at most ten messages a second are sent, and none is waited
    for. Without poprun-py, or without a live view, nothing happens; nothing is ever raised for a lost report.
    """
    _reporter().report(step, samples, loss)
