"""Notice socket: the socket on which a program sends notices to its supervisor (popdist_py.supervisor_socket)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from poprun_py.wire.messages import Leaving, Lost, Message, Report
from poprun_py.wire.variables import REPORT_SOCKET

_LARGEST = 256
_AT_A_TIME = 100


class NoticeSocket:
    """A pair of datagram sockets: one end for the supervisor, one that the program inherits."""

    def __init__(self) -> None:
        self._mine, self._its = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mine.setblocking(False)
        self._its.set_inheritable(True)
        self._report: Report | None = None

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

    def receive(self) -> list[Message]:
        """Return the notices that have arrived, except reports of progress; malformed ones are ignored."""
        notices = list[Message]()
        for _ in range(_AT_A_TIME):
            try:
                notice = _read(self._mine.recv(_LARGEST))
            except OSError:
                break
            if isinstance(notice, Report):
                self._report = notice
            elif notice is not None:
                notices.append(notice)
        return notices

    def take_report(self) -> Report | None:
        """Return the latest report of progress since the last call."""
        report, self._report = self._report, None
        return report


#: Kind of a notice -> the message of its values; see popdist_py.supervisor_socket.
_NOTICES: dict[str, Callable[..., Message]] = {
    "progress": lambda step, samples, loss: Report(int(step), int(samples), float(loss)),
    "lost": lambda rank: Lost(int(rank), False),
    "left": lambda rank: Lost(int(rank), True),
    "raised": lambda code: Leaving(int(code) & 0xFF, True, time.monotonic()),
    "exiting": lambda code: Leaving(int(code) & 0xFF, False, time.monotonic()),
}


def _read(data: bytes) -> Message | None:
    """Parse a notice, which is untrusted: the program may write anything."""
    try:
        kind, *values = data.decode("ascii").split()
        notice = _NOTICES[kind](*values)
    except (ValueError, KeyError, TypeError):
        return None
    return notice if all(abs(value) < 1 << 62 for value in notice if isinstance(value, int)) else None
