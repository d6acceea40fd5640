"""Company: two jobs of a user at the same time, in one or two process namespaces; neither affects the other."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.hostile.jobs.kills import mpi_named
from tests.hostile.jobs.outcome import RunningJob
from tests.hostile.kind import Trial
from tests.poprun_py.helpers.tagged_processes import tagged_processes

__all__ = ["two_jobs"]

_ELSEWHERE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@contextmanager
def two_jobs(mpi: str) -> Iterator[Trial]:
    """One job must end correctly while another starts, is partly killed, and is cleaned up."""
    mpirun = mpi_named(mpi)

    def trial(dice: random.Random) -> list[str]:
        elsewhere = dice.random() < 0.5
        first = RunningJob(mpirun, rounds=dice.choice([300, 1500]))
        first.wait_until_it_runs(within=dice.uniform(0.0, 3.0))
        tag = f"{dice.getrandbits(64):016x}"
        environ = {"POPRUN_TEST_TAG": tag}
        second = RunningJob(mpirun, prefix=_ELSEWHERE if elsewhere else [], environ=environ, rounds=100_000)
        second.left = first.left
        with suppress(subprocess.TimeoutExpired):
            second.process.wait(dice.uniform(0.1, 3.0))
        others = sorted(tagged_processes(tag))
        for pid in dice.sample(others, min(len(others), dice.choice([1, 1, 3, len(others)]))):
            with suppress(ProcessLookupError):
                os.kill(pid, dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        if second.process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                second.process.wait(dice.uniform(0.0, 1.0))
        for pid in tagged_processes(tag):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        second.process.communicate()
        sweep = RunningJob(mpirun, rounds=1) if dice.random() < 0.7 else None
        faults = []
        if sweep:
            _, err = sweep.process.communicate(timeout=120)
            faults += [f"a third job ended with {sweep.process.returncode}: {err!r}"] * bool(sweep.process.returncode)
        faults += first.faults(must_succeed=True, sweep=True)
        return [f"elsewhere: {elsewhere}", *faults] if faults else []

    yield trial
