"""Teardown: the time that a job has to end, once it is told to stop or all its instances are gone."""

from __future__ import annotations

from poprun_py.job.job_state import Job
from poprun_py.linux import processes
from poprun_py.linux.timers import Alarms
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.wire import messages
from poprun_py.wire.connections import Switchboard

__all__ = ["Teardown"]

#: Seconds from the end of the grace until everything is killed: with instances here, elsewhere, none at all.
_HERE, _ELSEWHERE, _MPIRUN_ALONE = 0.6, 0.9, 0.3

#: Seconds for mpirun to end after its processes: by itself, and in a job that was told to stop.
_MPIRUN_TIMEOUT, _STOPPED_MPIRUN_TIMEOUT = 5.0, 0.7


class Teardown:
    """Kills what is left when the time is over; ``has_killed`` says that it was."""

    def __init__(self, plan: LaunchPlan, job: Job, alarms: Alarms, switchboard: Switchboard) -> None:
        self._plan, self._job, self._alarms, self._switchboard = plan, job, alarms, switchboard
        self._mpirun = 0
        self._order: messages.Stop | None = None  # the last one that has a deadline
        self._all_gone = False
        self.has_killed = False

    def begin(self, mpirun: int) -> None:
        self._mpirun = mpirun

    def watch(self) -> None:
        """Set a deadline when there is news."""
        order = self._job.order
        if order is not None and order is not self._order:
            self._order = order
            grace = order.grace if self._job.has_started else 0.0
            elsewhere = _ELSEWHERE if self._plan.remote_hosts else _HERE
            patience = grace + (elsewhere if self._switchboard.is_used else _MPIRUN_ALONE)
            self._alarms.set(patience, lambda: self._kill_all() if self._order is order else None)
        if self._job.all_gone and not self._all_gone:
            self._all_gone = True
            self._alarms.set(_MPIRUN_TIMEOUT if order is None else _STOPPED_MPIRUN_TIMEOUT, self._kill_all)

    def _kill_all(self) -> None:
        self.has_killed = True
        self._job.given_up(self._mpirun)
        processes.end_descendants(timeout=0.5)
