"""Job state: the state of all instances, and the launcher's response to each event.

Nothing here waits for or touches a process: events come in as calls, messages go out through ``send``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from popdist_py.environment import EXECUTABLE_CACHE_PATH, JOB, RESTART_COUNT
from poprun_py.job.failure import CRASHES, OUTSIDE, InstanceEnd, Notices, ended_badly, first_failure, signal_name
from poprun_py.plan.launch_plan import Instance, LaunchPlan
from poprun_py.wire import messages
from poprun_py.wire.messages import MPI, OWN, UNMANAGED, Message


class HostClocks:
    """The seconds by which the launcher's clock is ahead of each host's."""

    def __init__(self) -> None:
        self._differences: dict[str, float] = {}

    def hear(self, host: str, sent: float, received: float) -> None:
        """Record a message that ``host`` sent at ``sent``, by its clock, and that was received at ``received``."""
        self._differences[host] = min(received - sent, self._differences.get(host, received - sent))

    def difference(self, host: str) -> float:
        """Return the seconds to add to a time of ``host``; they exceed the true difference by the least latency."""
        return self._differences.get(host, 0.0)


#: Seconds from SIGTERM to SIGKILL for the others, when an instance has failed.
KILL_AFTER = 0.5

#: Seconds that the others have to end by themselves when an instance ended because a peer had: one is the cause.
_PEER_SETTLE = 1.0

#: Bytes of credit for output written before a job whose output is not read was stopped: bounded, so all may be sent.
_LAST_CREDIT = 1 << 21

#: Jobs are numbered by the microsecond of their start, modulo this: numbers repeat after some days.
_JOBS = 1 << 40

_STAYED = "raised an exception, but its process did not end"

_HUNG = (
    "raised an exception and then waited in MPI_Finalize for the other instances; it would have waited forever "
    "(with popdist_py.init(), or under python -m mpi4py, a program ends at once)"
)


@dataclass
class _State:
    instance: Instance
    supervisor: int = 0
    pid: int = 0
    present: bool = False
    end: InstanceEnd | None = None
    waiting: bool = False  # in MPI_Finalize
    notices: Notices = field(default_factory=Notices)


class JobState:
    """All instances of a plan, from the first Hello to the last Gone.

    ``folder`` is the job's own on each host, ``cache`` that of its executables if the user named none.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        *,
        since: float,
        has_input: bool,
        send: Callable[[int, Message], None],
        restart: int = 0,
        folder: str = "",
        cache: str = "",
        usage_interval: float = 0.0,
        starter: str = "mpirun",
    ) -> None:
        self._plan = plan
        self._since = since
        self._has_input = has_input
        self._send = send
        self._restart = restart
        self._folder, self._cache = folder, cache
        self._usage_interval = usage_interval
        self._starter = starter
        self._states = [_State(instance) for instance in plan.instances]
        self._clocks = HostClocks()
        self._left = set(range(len(self._states)))  # those that are not gone
        self.has_started = False  # any program
        self._ends: list[InstanceEnd] = []  # in the order in which they became known
        self.order: messages.Stop | None = None  # the last that was sent to all instances
        self.why = ""  # a failure of the whole job, rather than of one instance
        self.code = 0  # its exit code
        self.user_signal = 0
        self._final = False
        self._mpirun_status: int | None = None
        self._blames_mpirun = False  # because no instance failed

    # -- events ------------------------------------------------------------------------------------------------------

    def expects(self, rank: int) -> bool:
        """Whether a supervisor may report for this rank: only once, and only for a rank of this job."""
        return 0 <= rank < len(self._states) and not self._states[rank].supervisor

    def hello(self, rank: int, supervisor: int) -> None:
        """Record that an expected supervisor has reported, and send it what to do."""
        state = self._states[rank]
        state.supervisor, state.present = supervisor, True
        self._send(rank, self.order or self._start(state.instance))

    def started(self, rank: int, pid: int) -> None:
        self._states[rank].pid = pid
        self.has_started = True

    def not_started(self, rank: int, reason: str) -> None:
        self._final = True
        self._add(rank, InstanceEnd(self._states[rank].instance, 0, 126, reason=f"could not be started: {reason}"))

    def noticed(self, rank: int, notice: messages.Lost | messages.Leaving) -> None:
        """Record what a program has told its supervisor; what it learns while it leaves is no reason to leave."""
        state = self._states[rank]
        lost, leaving = state.notices.lost, state.notices.leaving
        if isinstance(notice, messages.Leaving):
            state.notices = Notices(lost, notice)
        elif not lost and not (leaving and leaving.raised):
            state.notices = Notices(notice, leaving)

    def exited(self, rank: int, message: messages.Exited) -> None:
        """Record how a program ended."""
        state = self._states[rank]
        self._add(rank, InstanceEnd(state.instance, state.pid, message.status, message.cause, message.at))

    def aborted(self, rank: int, code: int) -> None:
        """Record that an instance called MPI_Abort, by what its MPI wrote; anybody can write that, except mpirun."""
        if code == self._mpirun_status:
            state = self._states[rank]
            end = state.end or InstanceEnd(state.instance, state.pid, -signal.SIGKILL, MPI)
            self._ends = [end for end in self._ends if end.instance.index != rank]
            self._add(rank, replace(end, aborted=code))

    def heard_clock(self, rank: int, at: float) -> None:
        """Record the current time of the clock of an instance's host."""
        self._clocks.hear(self._states[rank].instance.host, at, time.monotonic())

    def missed_peers(self, ranks: Collection[int]) -> None:
        """Record that instances ended because a peer had, as the MPI reports through mpirun."""
        self._ends = [replace(end, follows=True) if end.instance.index in ranks else end for end in self._ends]

    def orphaned(self, rank: int, message: messages.Orphaned) -> None:
        """Record that somebody has killed the parent of a supervisor, for which the MPI then ends the others."""
        state = self._states[rank]
        text = f"was lost: the parent of its supervisor (pid {message.parent}) was killed"
        self._add(rank, InstanceEnd(state.instance, state.pid, -signal.SIGKILL, OUTSIDE, message.at, reason=text))

    def hung(self, rank: int) -> None:
        """Record a failure: an exception ended the program, but its process does not end."""
        state = self._states[rank]
        if state.end is None:
            reason = _STAYED if state.notices.leaving else _HUNG
            self._add(rank, InstanceEnd(state.instance, state.pid, 1, reason=reason))

    def is_in_finalize(self, rank: int) -> None:
        """Record that the program has ended, but its process waits in MPI_Finalize for the others."""
        self._states[rank].waiting = True

    def gone(self, rank: int) -> None:
        """Record that no process of an instance is left; if it never started, the process manager stopped it."""
        state = self._states[rank]
        self._left.discard(rank)
        if state.end is None and not self.is_stopping:
            self._add(rank, InstanceEnd(state.instance, 0, -signal.SIGTERM, MPI))
        if self.all_gone:
            self._to_all(messages.Leave())

    def lost(self, rank: int, reason: str) -> None:
        """Record that the channel to a supervisor is closed: a failure unless the instance had ended."""
        state = self._states[rank]
        state.present = False
        if rank not in self._left:
            return
        self._left.discard(rank)
        if state.end is None:
            text = f"was lost: its supervisor (pid {state.supervisor}) {reason}"
            self._add(rank, InstanceEnd(state.instance, state.pid, -signal.SIGKILL, reason=text, lost=True))

    def mpirun_ended(self, pid: int, status: int) -> None:
        """Record the end of mpirun: supervisors that have not reported never will."""
        early = not all(self._states[rank].end for rank in self._left)
        self._left = {rank for rank in self._left if self._states[rank].present}
        # a code that mpirun passes on as its own came from a program
        self._mpirun_status = status
        self._ends = [self._own_if_passed_on(end) for end in self._ends]
        if early or self._ended_by_others or (status < 0 and any(map(ended_badly, self._ends))):
            killed = f"was killed by signal {-status} ({signal_name(-status)})"
            how = killed if status < 0 else f"exited with code {status}"
            self._blames_mpirun |= not self.why  # also if this is called again
            self.fail(
                f"{self._starter} (pid {pid}) {how} before the instances had ended{self.ssh_advice}",
                128 - status if status < 0 else status or 1,
            )

    @property
    def ssh_advice(self) -> str:
        """The advice if an instance on another host has never reported."""
        missing = [self._states[rank].instance.host for rank in self.missing]
        host = next((host for host in missing if host in self._plan.remote_hosts), "")
        return f"; if ssh is the reason, try: ssh {host} true" if host and self._starter != "srun" else ""

    def _own_if_passed_on(self, end: InstanceEnd) -> InstanceEnd:
        """The end with its cause: a code that mpirun passes on as its own came from a program."""
        passed_on = end.cause in (MPI, UNMANAGED) and 0 < end.status == self._mpirun_status
        return replace(end, cause=OWN) if passed_on else end

    def given_up(self, mpirun: int) -> None:
        """Record that everything had to be killed, as the reason for the failure if there is no other."""
        if self._ended_by_others or not self._ends:
            self.fail(f"{self._starter} (pid {mpirun}) ended the instances, but did not end itself", 1)

    def fail(self, why: str, code: int, *, final: bool = False) -> None:
        """Fail the job as a whole, for the reason ``why``; an instance that failed earlier is still blamed.

        ``final``: a restart would not help.
        """
        self._final = self._final or final
        if not self.failure and not self.user_signal and not self.why:
            self.why, self.code = why, code
        if not self.is_stopping:
            self._stop(signal.SIGTERM, KILL_AFTER)

    def interrupt(self, number: int, grace: float) -> None:
        """End the job for the user: with signal ``number`` the first time, at once the second time."""
        if self.is_stopping:
            self._stop(signal.SIGKILL, 0.0)
        else:
            self._stop(number, grace)
        if not self.failure:
            self.user_signal = self.user_signal or number

    def forward(self, number: int) -> None:
        """Send a signal to all programs."""
        self._to_all(messages.Signal(number))

    # -- queries -----------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> list[int]:
        """Ranks whose supervisors have not reported yet."""
        return [state.instance.index for state in self._states if not state.supervisor]

    @property
    def unstarted(self) -> list[int]:
        """Ranks whose programs have not started, and whose supervisors have not said why."""
        return [state.instance.index for state in self._states if not state.pid and state.end is None]

    def pid(self, rank: int) -> int:
        """Return the pid of the program; 0 before its start."""
        return self._states[rank].pid

    def state(self, rank: int) -> str:
        """Return the state of an instance as the progress table shows it."""
        state = self._states[rank]
        if state.end is not None:
            return state.end.state
        if not state.pid:
            return "starting"
        return "ending" if self.is_stopping else "finalizing" if state.waiting else "running"

    @property
    def waiting(self) -> str:
        """Name the instances that wait in MPI_Finalize for others that still run; empty if there are none."""
        running = [state for state in self._states if not state.end]
        ranks = [str(state.instance.index) for state in running if state.waiting]
        if not ranks or len(ranks) == len(running):
            return ""
        single = len(ranks) == 1
        who = f"instance{'' if single else 's'} {', '.join(ranks)} {'has' if single else 'have'}"
        return f"{who} ended and {'waits' if single else 'wait'} in MPI_Finalize for the others"

    @property
    def may_restart(self) -> bool:
        """Whether the job failed in a way that a restart may cure: an instance or mpirun ended by itself."""
        return bool(self.exit_code) and not self.user_signal and not self._final

    @property
    def is_stopping(self) -> bool:
        return self.order is not None

    @property
    def all_gone(self) -> bool:
        return not self._left

    @property
    def _ended_by_others(self) -> bool:
        return any(map(_is_by_others, self._ends))

    @property
    def failure(self) -> InstanceEnd | None:
        """The instance to blame, if it is one: MPICH may crash in the instances when somebody kills mpirun."""
        first = first_failure([self._by_own_clock(end) for end in self._ends])
        was_killed = self._mpirun_status is not None and self._mpirun_status < 0
        by_mpi = first is not None and (-first.status in CRASHES or first.cause == UNMANAGED)
        return None if was_killed and by_mpi else first

    def _by_own_clock(self, end: InstanceEnd) -> InstanceEnd:
        """The end with its times by the launcher's clock."""
        ahead, leaving = self._clocks.difference(end.instance.host), end.notices.leaving
        if leaving:
            end = replace(end, notices=replace(end.notices, leaving=leaving._replace(at=leaving.at + ahead)))
        return replace(end, at=end.at + ahead)

    @property
    def exit_code(self) -> int:
        if self.user_signal:
            return 128 + self.user_signal
        if self.why:
            return self.code
        return self.failure.exit_code if self.failure else 0

    # -- messages ----------------------------------------------------------------------------------------------------

    def _start(self, instance: Instance) -> messages.Start:
        plan = self._plan
        return messages.Start(
            argv=list(plan.program),
            executable=plan.executable,
            cwd=plan.cwd,
            environment={**instance.environment, **self._environment},
            unset=list(plan.unset),
            has_input=self._has_input and instance.index == 0,
            folder=self._folder,
            shared=list(plan.command.shared_variables),
            usage_interval=self._usage_interval,
            placement=plan.placement,
            local_index=instance.local_index,
            local_count=plan.instances_per_host,
            threads=list(plan.threads),
            network=plan.network,
        )

    @property
    def _environment(self) -> dict[str, str]:
        """Variables of this run of the job, in addition to those of the plan."""
        added = {RESTART_COUNT: str(self._restart), JOB: str(int(self._since * 1e6) % _JOBS)}
        return added | {EXECUTABLE_CACHE_PATH: self._cache} if self._cache else added

    def _add(self, rank: int, end: InstanceEnd) -> None:
        notices = self._states[rank].notices
        end = replace(self._own_if_passed_on(end), notices=notices, follows=end.follows or notices.lost is not None)
        if not end.at:
            end = replace(end, at=time.monotonic() - self._clocks.difference(end.instance.host))
        self._states[rank].end = end
        self._ends.append(end)
        if self._blames_mpirun and self.failure:  # that is why mpirun has ended
            self._blames_mpirun, self.why, self.code = False, "", 0
        if (ended_badly(end) or _is_by_others(end)) and not self.is_stopping:
            self._stop(signal.SIGTERM, KILL_AFTER, settle=_PEER_SETTLE if end.follows else 0.0)

    def _stop(self, number: int, grace: float, *, settle: float = 0.0) -> None:
        self.order = messages.Stop(number, grace, settle)
        self._to_all(self.order)
        self._to_all(messages.Credit(_LAST_CREDIT))

    def _to_all(self, message: Message) -> None:
        for state in self._states:
            if state.present:
                self._send(state.instance.index, message)


def _is_by_others(end: InstanceEnd) -> bool:
    """Whether the instance was ended neither by its program nor by the launcher."""
    return end.cause in (MPI, UNMANAGED, OUTSIDE)
