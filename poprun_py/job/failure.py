"""Failure: how each instance ended, and which of the failures decides the exit code of the job."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from poprun_py.plan.launch_plan import Instance
from poprun_py.wire import messages
from poprun_py.wire.messages import OWN, UNMANAGED

#: Signals that end an instance after a failure in its MPI, or a program with a defect.
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)

#: Signals that somebody sends to a process: neither a defect of its own nor the loss of a peer makes the kernel send
#: them.
_SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU)

#: A cause in addition to those of wire/messages.py: the instance was ended from outside the job.
OUTSIDE = "outside"


@dataclass(frozen=True)
class Notices:
    """What an instance has told its supervisor; None for what it has not."""

    lost: messages.Lost | None = None  # the first peer that it learned to be gone
    leaving: messages.Leaving | None = None  # the last


@dataclass(frozen=True)
class InstanceEnd:
    """How one instance ended, as its supervisor saw it (``at``: monotonic seconds of its host; by the launcher's
    clock where failures are compared).

    ``status`` is the exit code, or minus the signal; ``lost``: the supervisor itself is gone; ``follows``: it ended
    because a peer had; ``aborted``: the code that its MPI says it has given to MPI_Abort.
    """

    instance: Instance
    pid: int
    status: int
    cause: str = OWN
    at: float = 0.0
    reason: str = ""
    lost: bool = False
    follows: bool = False
    notices: Notices = field(default_factory=Notices)
    aborted: int | None = None

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

    It is the first of those that no peer has caused: an instance that had learned of the loss of a peer before it
    ended is not blamed, but that peer, even if it was stopped before it had ended, or had ended well. An
    instance that was ended from outside is blamed for the failures of others that followed, whichever was reported
    first: nobody kills an instance because a peer has failed.
    """
    outside = [end for end in ends if end.cause == OUTSIDE]
    if len(outside) == 1:
        return outside[0]
    causes = [cause for end in ends if not end.follows and (cause := _cause(end, ends))]
    callers = [aborted(end) for end in ends if end.aborted is not None]
    causes = _without_crashes_by_an_abort(causes, [end for end in callers if not end.follows])
    if causes and all(-end.status in CRASHES for end in causes):  # perhaps in their MPI, since another had exited
        causes += [end for end in ends if end.cause == UNMANAGED and end.status > 0 and not end.follows]
    failures = [end for end in ends if ended_badly(end) and end.cause == OWN] or callers
    if failures and not causes:
        causes = [_left_too_early(failures[0], ends) or failures[0]]
    killed = [end for end in causes if end.exit_code - 128 in _SENT]  # also as a shell reports it of its command
    return _earliest(killed or causes) if causes else None


def _cause(end: InstanceEnd, ends: Sequence[InstanceEnd]) -> InstanceEnd | None:
    """``end`` as a cause of the job's failure, None if it is none; ``at`` is when the instance began to leave."""
    leaving = end.notices.leaving
    lost = [peer.notices.lost for peer in ends if peer.notices.lost and peer.notices.lost.peer == end.instance.index]
    if ended_badly(end) and end.cause == OWN:
        return replace(end, at=min(end.at, leaving.at)) if leaving and leaving.code == end.status else end
    if leaving and leaving.code and (leaving.raised or any(notice.left for notice in lost)):
        return replace(end, status=leaving.code, cause=OWN, at=leaving.at, reason="")
    return replace(end, cause=OWN) if lost and end.cause == UNMANAGED and end.status > 0 else None


def _without_crashes_by_an_abort(causes: list[InstanceEnd], callers: list[InstanceEnd]) -> list[InstanceEnd]:
    """``causes``, or instances that called MPI_Abort: MPICH may crash in the others then."""
    others = [end for end in causes if end.aborted is None]
    return callers if callers and all(-end.status in CRASHES for end in others) else causes


def aborted(end: InstanceEnd) -> InstanceEnd:
    """The end of an instance that called MPI_Abort; the MPI ended it before it could end itself."""
    return replace(end, status=end.aborted or 1, cause=OWN, reason=f"called MPI_Abort with code {end.aborted}")


def _left_too_early(follower: InstanceEnd, ends: Sequence[InstanceEnd]) -> InstanceEnd | None:
    """The instance that ``follower`` has missed, directly or through others, or the first that ended well."""
    by_index = {end.instance.index: end for end in ends}
    root, seen = follower, set[int]()
    while root.follows and root.instance.index not in seen:
        seen.add(root.instance.index)
        root = by_index.get(root.notices.lost.peer if root.notices.lost else -1, root)
    others = [end for end in ends if not end.follows]
    left = [root] if not root.follows else [end for end in others if end.cause == OWN]
    if not left:
        return None
    how = "exited with code 0" if left[0].cause == OWN else "ended"
    reason = f"{how} while instance {follower.instance.index} still waited for it"
    return replace(left[0], status=follower.status, cause=OWN, reason=reason)


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
