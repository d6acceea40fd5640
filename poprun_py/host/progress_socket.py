"""Reports: the socket through which a program tells its supervisor how far it is; see popdist_py.progress."""

from __future__ import annotations

import os
import socket

from popdist_py.environment import REPORT_SOCKET
from poprun_py.wire.messages import Report

__all__ = ["Reports"]

_LARGEST = 256
_AT_A_TIME = 100


class Reports:
    """One end for the supervisor, which is told of the latest; one for the program, which inherits it."""

    def __init__(self) -> None:
        self._mine, self._its = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mine.setblocking(False)
        self._its.setblocking(False)
        self._its.set_inheritable(True)

    def fileno(self) -> int:
        return self._mine.fileno()

    @property
    def environment(self) -> dict[str, str]:
        """Where the program finds its end."""
        descriptor = self._its.fileno()
        return {REPORT_SOCKET: f"{descriptor}:{os.fstat(descriptor).st_ino}"}

    def started(self) -> None:
        """The program has its end: close ours of it."""
        self._its.close()

    def latest(self) -> Report | None:
        """What was said last, if anything; what makes no sense is passed over."""
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
    """``step samples loss``; anybody who runs as the program may have written it."""
    try:
        step, samples, loss = data.decode("ascii").split()
        report = Report(int(step), int(samples), float(loss))
    except ValueError:
        return None
    return report if max(abs(report.step), abs(report.samples)) < 1 << 62 else None
