"""Survivors: one instance of a job fails, which is to blame; the others handle the loss and leave in every way."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import tests.helpers.network_namespaces as namespaces
from tests.helpers.mpi_jobs import PROGRAMS
from tests.hostile.jobs.kills import mpi_named
from tests.hostile.kind import Trial, Unavailable
from tests.poprun_py.helpers import several_hosts
from tests.poprun_py.helpers.random_kills import BIN

__all__ = ["survivors_on_one_host", "survivors_on_two_hosts"]

_PROGRAM = PROGRAMS / "poprun_py/mpi/survivors.py"

#: Ways in which the culprit fails -> the launcher's words, and the exit code of the job.
_FAILURES = {
    "raise": (r"exited with code 1: ValueError: the reason of instance {0} \(survivors.py:\d+, in leave\)", 1),
    "group": (r"exited with code 1: .*ValueError: the reason of instance {0} \(survivors.py:\d+, in leave\)", 1),
    "exit": ("exited with code 3", 3),
    "os._exit": ("exited with code 3", 3),
    "MPI_Abort": ("(called MPI_Abort with|exited with) code 3", 3),
    "SIGABRT": (r"was killed by signal 6 \(SIGABRT\)", 134),
    "SIGSEGV": (r"was killed by signal 11 \(SIGSEGV\)", 139),
    "SIGKILL": (r"was killed by signal 9 \(SIGKILL\)", 137),
}

#: Ways in which survivors leave.
_WAYS = ("raise", "group", "exit", "os._exit", "MPI_Abort", "SIGABRT", "SIGSEGV", "reraise")

#: A process that computes, and how many there are in a third of the jobs.
_BUSY, _BUSY_PROCESSES = [sys.executable, "-c", "while True: pass"], 4

#: Instances of a job; the fraction of jobs that use PyTorch, which starts slowly.
_INSTANCES, _TORCH = (2, 2, 4), 0.05

#: Seconds within which a job ends.
_PATIENCE = 200.0


@dataclass(frozen=True)
class _Case:
    api: str
    instances: int
    culprit: int
    failure: str
    way: str
    load: int

    @classmethod
    def drawn(cls, dice: random.Random) -> _Case:
        instances = dice.choice(_INSTANCES)
        api = "torch" if dice.random() < _TORCH else "gcl"
        failure, way = dice.choice([*_FAILURES]), dice.choice(_WAYS)
        return cls(api, instances, dice.randrange(instances), failure, way, dice.choice([0, 0, _BUSY_PROCESSES]))

    @property
    def arguments(self) -> list[str]:
        words = ["--num-instances", str(self.instances), sys.executable, str(_PROGRAM)]
        return [*words, self.api, str(self.culprit), self.failure, self.way]

    def faults(self, code: int, said: str) -> list[str]:
        """What is wrong with the exit code and the last words of the launcher."""
        words, right = _FAILURES[self.failure]
        wanted = rf"(?m)^poprun-py: instance {self.culprit} \(.*\) {words.format(self.culprit)}"
        faults = [f"code {code} instead of {right}"] * (code != right)
        faults += [f"no {wanted!r}"] * (re.search(wanted, said) is None)
        return [str(self), *faults, said[-3000:]] if faults else []


@contextmanager
def survivors_on_one_host(mpi: str) -> Iterator[Trial]:
    """All instances on this host."""
    launcher = [str(BIN / "poprun-py"), "--mpi", mpi_named(mpi)]

    def trial(dice: random.Random) -> list[str]:
        case = _Case.drawn(dice)
        with _load(case.load):
            command = [*launcher, *case.arguments]
            done = subprocess.run(
                command, check=False, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE
            )
        return case.faults(done.returncode, done.stderr.decode(errors="replace"))

    yield trial


@contextmanager
def survivors_on_two_hosts(mpi: str) -> Iterator[Trial]:
    """Instances on two hosts, which are network namespaces with an sshd each."""
    mpirun = mpi_named(mpi)
    if namespaces.unavailable:
        raise Unavailable(f"network namespaces: {namespaces.unavailable}")
    Path("/run/sshd").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, namespaces.hosts(2, Path(folder)) as where:

        def trial(dice: random.Random) -> list[str]:
            case = _Case.drawn(dice)
            with _load(case.load):
                job = several_hosts.Job(where, ["--mpi", mpirun, "--host", ",".join(where.names), *case.arguments])
                try:
                    code, _, said = job.finish(_PATIENCE)
                finally:
                    job.end()
            return case.faults(code, said)

        yield trial


@contextmanager
def _load(count: int) -> Iterator[None]:
    """Keep ``count`` processes busy."""
    with ExitStack() as stack:
        for _ in range(count):
            busy = stack.enter_context(subprocess.Popen(_BUSY))
            stack.callback(busy.send_signal, signal.SIGKILL)
        yield
