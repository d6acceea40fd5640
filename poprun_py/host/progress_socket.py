"""Progress socket: the socket on which a program reports its progress to its supervisor (popdist_py.progress)."""

from __future__ import annotations

import os
import socket

from poprun_py.wire.messages import Report
from poprun_py.wire.variables import REPORT_SOCKET

__all__ = ["ProgressSocket"]

_LARGEST = 256
_AT_A_TIME = 100


class ProgressSocket:
    """A pair of datagram sockets: one end for the supervisor, one that the program inherits."""

    def __init__(self) -> None:
        self._mine, self._its = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mine.setblocking(False)
        self._its.setblocking(False)
        self._its.set_inheritable(True)

    def fileno(self) -> int:
        return self._mine.fileno()

    @property
    def environment(self) -> dict[str, str]:
        """The variable that tells the program which descriptor its end is."""
        descriptor = self._its.fileno()
        return {REPORT_SOCKET: f"{descriptor}:{os.fstat(descriptor).st_ino}"}

    def started(self) -> None:
        """Close this process's copy of the program's end, once the program has inherited it."""
        self._its.close()

    def latest(self) -> Report | None:
        """Return the latest report since the last call; malformed ones are ignored."""
        report = None
        for _ in range(_AT_A_TIME):
            try:
                data = self._mine.recv(_LARGEST)
            except OSError:
                break
            report = _read(data) or report
        return report

    def close(self) -> None:
        self._mine.close()
        self._its.close()


def _read(data: bytes) -> Report | None:
    """Parse ``step samples loss``, which is untrusted: the program may write anything."""
    try:
        step, samples, loss = data.decode("ascii").split()
        report = Report(int(step), int(samples), float(loss))
    except ValueError:
        return None
    return report if max(abs(report.step), abs(report.samples)) < 1 << 62 else None
