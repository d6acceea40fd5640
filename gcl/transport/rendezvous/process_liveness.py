"""Process liveness: whether a process of this host is still alive."""

from __future__ import annotations

import os
from typing import NamedTuple


class Process(NamedTuple):
    """A process, identified by its id, which the system may reuse, and its start time in clock ticks."""

    pid: int
    started: int

    @classmethod
    def own(cls) -> Process:
        """The calling process."""
        return cls(os.getpid(), _started(os.getpid()))

    def alive(self) -> bool:
        """Whether the process still exists and is not a zombie."""
        return _started(self.pid) == self.started


def _started(pid: int) -> int:
    """Start time of process ``pid``; -1 if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
