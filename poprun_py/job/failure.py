"""Failure: how each instance ended, and which of the failures decides the exit code of the job."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from poprun_py.plan.launch_plan import Instance
from poprun_py.wire.messages import OWN

__all__ = ["InstanceEnd", "ended_badly", "first_failure", "signal_name"]


@dataclass(frozen=True)
class InstanceEnd:
    """How one instance ended, as its supervisor saw it (``at``: monotonic seconds of its host).

    ``status`` is the exit code, or minus the signal; ``lost``: the supervisor itself is gone.
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
        """The exit code as a shell gives it: 128 + n for signal n."""
        return 128 - self.status if self.status < 0 else self.status

    @property
    def description(self) -> str:
        if self.reason:
            return self.reason
        if self.status < 0:
            return f"was killed by signal {-self.status} ({signal_name(-self.status)})"
        return f"exited with code {self.status}"

    @property
    def state(self) -> str:
        """The end as the progress table shows it."""
        if not ended_badly(self):
            return "ended" if self.status else "done"
        return "lost" if self.lost else signal_name(-self.status) if self.status < 0 else f"failed ({self.status})"

    def __str__(self) -> str:
        where = f"pid {self.pid} on {self.instance.host}" if self.pid else f"on {self.instance.host}"
        return f"instance {self.instance.index} ({where}, {self.instance.replica_text}) {self.description}"


def ended_badly(end: InstanceEnd) -> bool:
    """Did the instance fail by itself, rather than because it was stopped?"""
    return end.cause == OWN and end.status != 0


def first_failure(ends: Sequence[InstanceEnd]) -> InstanceEnd | None:
    """Return the failure to blame; ``ends`` are in the order in which they were reported.

    It is the first that was reported, or one that happened earlier on the same host and was reported later.
    """
    failures = [end for end in ends if ended_badly(end)]
    if not failures:
        return None
    reported_first = failures[0]
    same_host = [end for end in failures if end.instance.host == reported_first.instance.host and not end.lost]
    return (
        min(same_host, key=lambda end: end.at, default=reported_first) if not reported_first.lost else reported_first
    )


def signal_name(number: int) -> str:
    """Return the name of a signal: SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"
