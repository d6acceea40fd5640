"""Startup: whether all instances of a job start; the job fails as soon as that cannot be any more."""

from __future__ import annotations

import os

from poprun_py.job.job_state import Job
from poprun_py.linux import processes
from poprun_py.linux.timers import Alarms
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.wire import messages

__all__ = ["START_TIMEOUT", "START_TIMEOUT_PER_INSTANCE", "Startup"]

#: Seconds until every supervisor must have reported, plus so much for each.
START_TIMEOUT, START_TIMEOUT_PER_INSTANCE = 30.0, 1.0

#: Seconds between two looks at an mpirun that has not started everything yet, and how many have to find the same.
_CHECK_START, _LOOKS = 0.25, 3


class Startup:
    """``starter`` is the name of what starts the instances: mpirun, mpiexec or srun."""

    def __init__(self, plan: LaunchPlan, job: Job, alarms: Alarms, starter: str) -> None:
        self._plan, self._job, self._alarms, self._starter = plan, job, alarms, starter
        self._mpirun = 0
        self._is_over = False

    def begin(self, mpirun: int) -> None:
        """Look at the process ``mpirun`` until all instances have started."""
        self._mpirun = mpirun
        if not self._plan.remote_hosts and self._starter != "srun":  # whose instances are none of its children
            self._alarms.set(_CHECK_START, self._look)
        patience = START_TIMEOUT + START_TIMEOUT_PER_INSTANCE * len(self._plan.instances)
        self._alarms.set(patience, lambda: self._on_timeout(patience))

    def end(self) -> None:
        """There is no mpirun to look at any more."""
        self._is_over = True

    def meet(self, hello: messages.Hello) -> None:
        """Have we adopted the supervisor, because what had started it was gone?"""
        here = hello.host == os.uname().nodename
        if here and processes.parent(processes.parent(hello.pid)) == os.getpid():
            self._fail("its process manager")

    def _look(self, found: int = 0) -> None:
        """Does an mpirun of this host have anything left that could start what is missing? It may wait for ever."""
        if not self._job.missing or self._job.is_stopping or self._is_over:
            return
        found = found + 1 if processes.has_lost_children(self._mpirun) else 0
        if found == _LOOKS:
            self._fail("all that it had started")
        self._alarms.set(_CHECK_START, lambda: self._look(found))

    def _fail(self, lost: str) -> None:
        self._job.fail(f"{self._starter} (pid {self._mpirun}) lost {lost} before the instances had started", 1)

    def _on_timeout(self, patience: float) -> None:
        if self._job.missing:
            ranks = ", ".join(map(str, self._job.missing))
            self._job.fail(f"instances {ranks} did not start within {patience:g} s", 1)
