"""Failure: how each instance ended, and which of the failures decides the exit code of the job."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from poprun_py.output.stderr_end import StderrEnd
from poprun_py.plan.launch_plan import Instance
from poprun_py.wire.messages import OWN

__all__ = ["CRASHES", "OUTSIDE", "InstanceEnd", "aborted", "ended_badly", "first_failure", "signal_name"]

#: Signals that end an instance after a failure in its MPI, or a program with a defect.
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)

#: Signals that somebody sends to a process: neither a defect of its own nor the loss of a peer makes the kernel send
#: them.
_SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU)

#: A cause in addition to those of wire/messages.py: the instance was ended from outside the job.
OUTSIDE = "outside"


@dataclass(frozen=True)
class InstanceEnd:
    """How one instance ended, as its supervisor saw it (``at``: monotonic seconds of its host; by the launcher's
    clock where failures are compared).

    ``status`` is the exit code, or minus the signal; ``lost``: the supervisor itself is gone.
    """

    instance: Instance
    pid: int
    status: int
    cause: str = OWN
    at: float = 0.0
    reason: str = ""
    lost: bool = False
    stderr: StderrEnd = field(default_factory=StderrEnd)

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
    """Whether the instance failed by itself, rather than because it was stopped."""
    return end.cause in (OWN, OUTSIDE) and end.status != 0


def first_failure(ends: Sequence[InstanceEnd]) -> InstanceEnd | None:
    """Return the failure to blame; ``ends`` are in the order in which they were reported, their times of one clock.

    It is the one that happened first. An instance that ended because a peer had is not blamed, but the peer: one that
    raised an exception, even if it was stopped before it had ended, or else one that left while it was still needed.
    MPICH may crash in the others when one has called MPI_Abort. An instance that was ended from outside is
    blamed for the failures of others that followed, whichever was reported first: nobody kills an instance because a
    peer has failed.
    """
    lost = [end for end in ends if end.cause == OUTSIDE]
    if len(lost) == 1:
        return lost[0]
    own = [end for end in ends if ended_badly(end) and end.cause == OWN]
    failures = _without_crashes_by_an_abort(ends, own)
    causes = [end for end in failures if not end.stderr.follows]
    if failures and not causes:
        causes = _stopped_while_raising(ends) or _left_too_early(ends, failures[0]) or failures
    killed = [end for end in causes if end.exit_code - 128 in _SENT]  # also as a shell reports it of its command
    return _earliest(killed or causes) if causes else None


def _without_crashes_by_an_abort(ends: Sequence[InstanceEnd], failures: list[InstanceEnd]) -> list[InstanceEnd]:
    callers = [end for end in ends if end.stderr.aborted is not None and not end.stderr.raised]
    others = [end for end in failures if end.stderr.aborted is None]
    if not failures or not callers or any(-end.status not in CRASHES for end in others):
        return failures
    return [aborted(end) for end in callers]


def aborted(end: InstanceEnd) -> InstanceEnd:
    """The end of an instance that called MPI_Abort; the MPI ended it before it could end itself."""
    code = end.stderr.aborted or 1
    return replace(end, status=code, cause=OWN, reason=f"called MPI_Abort with code {code}")


def _stopped_while_raising(ends: Sequence[InstanceEnd]) -> list[InstanceEnd]:
    raised = [end for end in ends if end.stderr.raised and not end.stderr.follows]
    return [replace(end, status=1, cause=OWN) for end in raised]


def _left_too_early(ends: Sequence[InstanceEnd], follower: InstanceEnd) -> list[InstanceEnd]:
    """The instance that ``follower`` has missed, or the first that ended well."""
    peers = [end for end in ends if not end.stderr.follows]
    named = [end for end in peers if end.instance.index == follower.stderr.peer]
    left = named or [end for end in peers if end.cause == OWN]
    how = "exited with code 0" if left and left[0].cause == OWN else "ended"
    reason = f"{how} while instance {follower.instance.index} still waited for it"
    return [replace(left[0], status=follower.status, cause=OWN, reason=reason)] if left else []


def _earliest(failures: Sequence[InstanceEnd]) -> InstanceEnd:
    """The first; it is not known when an instance was lost, only when that was noticed."""
    if failures[0].lost:
        return failures[0]
    return min((end for end in failures if not end.lost), key=lambda end: end.at)


def signal_name(number: int) -> str:
    """Return the name of a signal: SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a real-time signal"
