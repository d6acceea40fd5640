"""Failure: which end of an instance was the first, whose exit code the job has, and how it is told."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from poprun_py.plan.launch_plan import Instance
from poprun_py.wire.messages import OWN

__all__ = ["End", "ended_badly", "first_failure", "signal_name"]


@dataclass(frozen=True)
class End:
    """How one instance ended, as its supervisor saw it (``at``: monotonic seconds of its host).

    ``status`` is the exit code, or minus the signal; ``lost`` says that the supervisor itself is gone.
    """

    instance: Instance
    pid: int
    status: int
    cause: str = OWN
    at: float = 0.0
    reason: str = ""
    lost: bool = False

    @property
    def exit_code(self) -> int:
        """As a shell would have it: 128 + n for signal n."""
        return 128 - self.status if self.status < 0 else self.status

    @property
    def what(self) -> str:
        if self.reason:
            return self.reason
        if self.status < 0:
            return f"was killed by signal {-self.status} ({signal_name(-self.status)})"
        return f"exited with code {self.status}"

    @property
    def in_short(self) -> str:
        """In a word or two."""
        if not ended_badly(self):
            return "ended" if self.status else "done"
        return "lost" if self.lost else signal_name(-self.status) if self.status < 0 else f"failed ({self.status})"

    def __str__(self) -> str:
        where = f"pid {self.pid} on {self.instance.host}" if self.pid else f"on {self.instance.host}"
        return f"instance {self.instance.index} ({where}, {self.instance.replica_text}) {self.what}"


def ended_badly(end: End) -> bool:
    """Failed by itself, not because others asked it to end."""
    return end.cause == OWN and end.status != 0


def first_failure(ends: Sequence[End]) -> End | None:
    """The failure to blame, of ends in the order in which they became known.

    The first that became known; but news travels, so an earlier one on the same host takes its place.
    """
    failures = [end for end in ends if ended_badly(end)]
    if not failures:
        return None
    known_first = failures[0]
    same_host = [end for end in failures if end.instance.host == known_first.instance.host and not end.lost]
    return min(same_host, key=lambda end: end.at, default=known_first) if not known_first.lost else known_first


def signal_name(number: int) -> str:
    """SIGKILL for 9; real-time signals have no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"
