"""Deadlines: the time that the instances of a job have to start, and the time that the job has to end."""

from __future__ import annotations

import os
from collections.abc import Callable

from poprun_py.job.job_state import JobState
from poprun_py.linux import processes
from poprun_py.linux.event_sources import Timers
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.wire import messages
from poprun_py.wire.connections import Connections

#: Seconds within which all programs must have started, and seconds that are added for each instance.
START_TIMEOUT, START_TIMEOUT_PER_INSTANCE = 30.0, 1.0

#: Seconds after which the user is told which instances have not started.
_START_NOTICE = 10.0

#: Seconds between two checks of an mpirun that has not started everything yet, and how many in a row must agree.
_START_CHECK_INTERVAL, _START_CHECKS = 0.25, 3

#: Seconds from the end of the grace period until everything is killed: all instances on this host, some on other
#: hosts, no instance connected.
_HERE, _ELSEWHERE, _MPIRUN_ALONE = 0.6, 0.9, 0.3

#: Seconds that mpirun has to end after the last instance: in a job that ends by itself, and in one that was stopped.
_MPIRUN_TIMEOUT, _STOPPED_MPIRUN_TIMEOUT = 5.0, 0.7


class StartupMonitor:
    """Fails the job as soon as it is clear that not all instances will start.

    ``starter`` is the name of the command that starts them: mpirun, mpiexec or srun. ``say`` tells the user a line.
    """

    def __init__(
        self, plan: LaunchPlan, job: JobState, timers: Timers, starter: str, say: Callable[[str], None]
    ) -> None:
        self._plan, self._job, self._timers, self._starter, self._say = plan, job, timers, starter, say
        self._mpirun = 0
        self._is_over = False

    def begin(self, mpirun: int) -> None:
        """Watch the process ``mpirun`` until all instances have started."""
        self._mpirun = mpirun
        if not self._plan.remote_hosts and self._starter != "srun":  # else the instances are not its children
            self._timers.call_later(_START_CHECK_INTERVAL, self._check)
        timeout = START_TIMEOUT + START_TIMEOUT_PER_INSTANCE * len(self._plan.instances)
        self._timers.call_later(_START_NOTICE, lambda: self._report_wait(timeout))
        self._timers.call_later(timeout, lambda: self._on_timeout(timeout))

    def end(self) -> None:
        """Stop watching: mpirun has ended."""
        self._is_over = True

    def on_hello(self, hello: messages.Hello) -> None:
        """Fail the job if this process has adopted the supervisor, since the process that started it is gone."""
        starter = processes.parent(hello.pid)  # mpirun itself where a supervisor could not be started
        here = hello.host == os.uname().nodename and starter != self._mpirun
        if here and processes.parent(starter) == os.getpid():
            self._fail("its process manager")

    def _check(self, checks: int = 0) -> None:
        """Fail the job if an mpirun on this host has no process left that could start the missing instances.

        It might wait for them forever.
        """
        if not self._job.missing or self._job.is_stopping or self._is_over:
            return
        checks = checks + 1 if processes.has_lost_children(self._mpirun) else 0
        if checks == _START_CHECKS:
            self._fail("all processes that it had started")
        self._timers.call_later(_START_CHECK_INTERVAL, lambda: self._check(checks))

    def _fail(self, lost: str) -> None:
        self._job.fail(f"{self._starter} (pid {self._mpirun}) lost {lost} before the instances had started", 1)

    def _report_wait(self, timeout: float) -> None:
        """Tell the user what the launcher waits for, and for how long."""
        if self._job.unstarted and not self._job.is_stopping:
            who, verb = self._unstarted
            self._say(f"{who} {verb} not started after {_START_NOTICE:g} s; the job fails after {timeout:g} s")

    def _on_timeout(self, timeout: float) -> None:
        if self._job.unstarted:
            who, _ = self._unstarted
            self._job.fail(f"{who} did not start within {timeout:g} s{self._job.ssh_advice}", 1)

    @property
    def _unstarted(self) -> tuple[str, str]:
        """The instances whose programs have not started, and the verb for their number."""
        ranks = ", ".join(map(str, self._job.unstarted))
        return (f"instance {ranks}", "has") if len(self._job.unstarted) == 1 else (f"instances {ranks}", "have")


class Teardown:
    """Kills the remaining processes of a job that does not end in time; ``has_killed``: whether it did."""

    def __init__(self, plan: LaunchPlan, job: JobState, timers: Timers, connections: Connections) -> None:
        self._plan, self._job, self._timers, self._connections = plan, job, timers, connections
        self._mpirun = 0
        self._order: messages.Stop | None = None  # the order that the current deadline belongs to
        self._all_gone = False
        self.has_killed = False

    def begin(self, mpirun: int) -> None:
        self._mpirun = mpirun

    def update(self) -> None:
        """Set a deadline if the job was told to stop, or its last instance has gone, since the last call."""
        order = self._job.order
        if order is not None and order is not self._order:
            self._order = order
            grace = order.grace + order.settle if self._job.has_started else 0.0
            margin = _ELSEWHERE if self._plan.remote_hosts else _HERE
            timeout = grace + (margin if self._connections.is_used else _MPIRUN_ALONE)
            self._timers.call_later(timeout, lambda: self._kill_all() if self._order is order else None)
        if self._job.all_gone and not self._all_gone:
            self._all_gone = True
            timeout = _MPIRUN_TIMEOUT if order is None else _STOPPED_MPIRUN_TIMEOUT
            self._timers.call_later(timeout, self._kill_all)

    def _kill_all(self) -> None:
        self.has_killed = True
        self._job.given_up(self._mpirun)
        processes.end_descendants(timeout=0.5)
