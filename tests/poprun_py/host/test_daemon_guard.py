"""Daemon guard: it ends an Open MPI daemon on another host that has started nothing when its session is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import poprun_py.host
from poprun_py.host import daemon_guard
from poprun_py.host.daemon_guard import DaemonGuard
from poprun_py.linux import processes
from poprun_py.linux.job_record import JobRecord
from poprun_py.linux.session_folders import folders_of
from tests.helpers.patience import Patience

GUARD = Path(poprun_py.host.__path__[0]) / "daemon_guard.py"

#: The command of sshd and the remote shell: the guard, then the daemon in place of the shell.
SESSION = '({python} -I -S {guard} "{folder}" & exec {first}) & wait'

#: A daemon that forks another, which makes its session folder and perhaps starts something.
DAEMON = """#!{python}
import os, signal, subprocess, sys
if os.fork() == 0:
    os.setsid()
    os.mkdir("{temporary}/prted.%d" % os.getpid())
    started = {start} and subprocess.Popen(["sleep", "60"])
    open("{temporary}/ready", "w").write(str(os.getpid()))
    signal.pause()
os.wait()
"""


class Session:
    """A session in which a daemon runs, with a guard beside it."""

    def __init__(self, folder: Path, *, starts: bool) -> None:
        self.folder = folder
        daemon = folder / "prted"
        daemon.write_text(DAEMON.format(python=sys.executable, temporary=folder, start=starts))
        daemon.chmod(0o700)
        job = folder / f"poprun-py.{os.getuid()}" / "0123456789abcdef"
        job.parent.mkdir(mode=0o700)
        command = SESSION.format(python=sys.executable, guard=GUARD, folder=job, first=daemon)
        environment = os.environ | {"TMPDIR": str(folder)}
        self.process = subprocess.Popen(["sh", "-c", command], env=environment, stdout=subprocess.PIPE)
        self.until(lambda: self.record().is_file() and self.record().read_bytes().count(b"/prted.") == 1)
        self.until(lambda: (folder / "ready").is_file() and (folder / "ready").read_text())
        self.daemon = int((folder / "ready").read_text())
        self.first = processes.parent(self.daemon)

    def record(self) -> Path:
        return self.folder / f"poprun-py.{os.getuid()}" / "0123456789abcdef.files"

    def until(self, condition, seconds: float = 20.0) -> None:
        patience = Patience(seconds)
        while not condition():
            assert not patience.is_over
            time.sleep(0.02)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        for pid in (self.first, *processes.descendants(self.first), *processes.descendants(self.daemon), self.daemon):
            processes.kill(pid, signal.SIGKILL)
        self.end()


@pytest.fixture
def session(request, tmp_path):
    created = Session(tmp_path, starts=request.param)
    yield created
    created.close()


@pytest.mark.parametrize("session", [False], indirect=True)
def test_a_daemon_that_has_started_nothing_ends_with_its_session(session):
    session.end()
    session.until(lambda: not processes.is_alive(session.daemon) and not session.record().exists())
    assert not list(session.folder.glob("prted.*"))


@pytest.mark.parametrize("session", [True], indirect=True)
def test_a_daemon_that_has_started_something_is_left_to_that(session):
    time.sleep(0.5)  # the guard checks
    session.end()
    time.sleep(3)  # more than the signals for others
    assert processes.is_alive(session.daemon)
    assert session.record().exists()


@pytest.mark.parametrize("session", [False], indirect=True)
def test_a_daemon_that_is_killed_leaves_no_folder(session):
    processes.kill(session.daemon, signal.SIGKILL)
    session.until(lambda: not session.record().exists())
    assert not list(session.folder.glob("prted.*"))
    assert session.process.poll() is not None or not processes.is_alive(session.first)


@pytest.mark.parametrize("session", [False], indirect=True)
def test_the_guard_keeps_no_pipe_of_the_session_open(session):
    (guard,) = (pid for pid in processes.descendants(session.process.pid) if processes.command(pid).startswith("py"))
    pipe = os.readlink(f"/proc/{session.daemon}/fd/1")
    assert pipe.startswith("pipe:")
    assert pipe not in [os.readlink(f"/proc/{guard}/fd/{name}") for name in os.listdir(f"/proc/{guard}/fd")]


def test_a_daemon_whose_session_was_over_before_the_guard_came_is_ended(tmp_path, monkeypatch):
    program = tmp_path / "prted"
    program.write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n")
    program.chmod(0o700)
    with subprocess.Popen([program]) as daemon:
        parent = processes.parent
        monkeypatch.setattr(processes, "parent", lambda pid: 1 if pid == daemon.pid else parent(pid))
        monkeypatch.setattr(daemon_guard, "ORPHAN_TIMEOUT", 0.2)
        DaemonGuard(daemon.pid, None).run()
        assert daemon.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("adopter", ["init", "another session"])
def test_a_guard_whose_parent_was_gone_before_it_came_guards_nothing(adopter, monkeypatch):
    """The process that adopted it has other descendants, such as daemons of this user's other jobs."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        monkeypatch.setattr(os, "getppid", lambda: 1 if adopter == "init" else stranger.pid)
        monkeypatch.setattr(sys, "argv", ["daemon_guard.py", ""])
        monkeypatch.setattr(os, "closerange", lambda *_: None)
        monkeypatch.setattr(DaemonGuard, "run", lambda self: pytest.fail("it guards what is none of its own"))
        path = list(sys.path)
        daemon_guard.main()
        sys.path[:] = path
        stranger.kill()


@pytest.fixture
def prted(tmp_path):
    """A process with the name of a daemon."""
    program = tmp_path / "prted"
    program.write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n")
    program.chmod(0o700)
    with subprocess.Popen([program], start_new_session=True) as daemon:
        while processes.command(daemon.pid) != "prted":
            time.sleep(0.01)
        yield daemon
        daemon.kill()


def test_a_pid_that_has_become_another_daemons_is_not_taken_for_ours(prted, monkeypatch):
    """The pid belonged to a descendant of the first process when it was read, and belongs to another process now."""
    with subprocess.Popen(["sleep", "60"]) as first:
        monkeypatch.setattr(processes, "descendants", lambda root: [prted.pid] if root == first.pid else [])
        guard = DaemonGuard(first.pid, None)
        guard.look()
        guard.end()
        assert prted.poll() is None
        first.kill()


def test_other_commands_of_the_user_are_no_daemons(prted, tmp_path):
    other = tmp_path / "prte"
    other.write_text((tmp_path / "prted").read_text())
    other.chmod(0o700)
    with subprocess.Popen([other]) as process:
        while processes.command(process.pid) != "prte":
            time.sleep(0.01)
        guard = DaemonGuard(process.pid, None)
        guard.end()
        assert process.poll() is None
        process.kill()


def test_a_folder_that_is_older_than_the_daemon_is_not_listed(prted, tmp_path, monkeypatch):
    """The folder of a daemon with the same pid in another container that shares the temporary folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    started = processes.started_at(prted.pid)
    (tmp_path / f"prted.{prted.pid}").mkdir()
    assert folders_of(prted.pid, [str(tmp_path)]) == [str(tmp_path / f"prted.{prted.pid}")]
    monkeypatch.setattr(processes, "started_at", lambda pid: started + 3600)
    (tmp_path / f"prted.{prted.pid}" / "changed").touch()
    assert folders_of(prted.pid, [str(tmp_path)]) == []


def test_a_link_in_place_of_a_session_folder_is_not_listed(prted, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / f"prted.{prted.pid}").symlink_to(tmp_path / "precious")
    job = tmp_path / f"poprun-py.{os.getuid()}" / "0123456789abcdef"
    job.parent.mkdir(mode=0o700)
    record = JobRecord(str(job))
    record.add(folders_of(prted.pid, [str(tmp_path)]))
    record.close()
    assert (tmp_path / "precious").is_dir()
