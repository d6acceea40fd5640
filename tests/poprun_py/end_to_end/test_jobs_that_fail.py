"""Jobs that fail: which failure is reported, with which exit code, and that no process is left, with each MPI."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgpack
import pytest

import poprun_py
from poprun_py.cli import main
from poprun_py.linux import processes
from tests.helpers.mpi_jobs import PROGRAMS
from tests.helpers.patience import Patience
from tests.poprun_py.conftest import sampled_with_mpi

IN_A_BARRIER = str(PROGRAMS / "poprun_py/in_a_barrier.py")
#: The command that runs the program; the name of a failure follows.
ENDING = (sys.executable, str(PROGRAMS / "poprun_py/endings.py"))


class Barrier:
    """A job of two instances that hold MPI's resources and wait; its processes by their role."""

    def __init__(self, launch, mpi: str, *options: str) -> None:
        self.job = launch("--mpi", mpi, "--num-instances", "2", *options, sys.executable, IN_A_BARRIER)
        self.segments: set[str] = set()
        programs = {}
        for match in self.job.read_until(r"READY (\d) (\d+)(.*)", 2):
            programs[int(match[1])] = int(match[2])
            self.segments |= set(match[3].split())
        parents = self.job.processes()
        self.pids = {"program": programs[1], "launcher": self.job.process.pid}
        self.pids["supervisor"] = parents[programs[1]]
        self.pids["holder"] = parents[self.pids["supervisor"]]
        self.pids["manager"] = parents[self.pids["holder"]]
        self.pids["mpirun"] = next(pid for pid, parent in parents.items() if parent == self.job.process.pid)

    def kill(self, victim: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pids[victim], number)

    def assert_clean(self) -> None:
        self.job.assert_nothing_left()
        assert self.segments
        assert [path for path in self.segments if Path(path).exists()] == []
        assert not Path(f"/tmp/ompi.{self.pids['mpirun']}").exists()


#: Process to kill -> the exit code (None: any failure), and the message.
DEATHS = {
    "program": (137, r"instance 1 \(pid {program} on localhost, replica 1\) was killed by signal 9 \(SIGKILL\)"),
    "supervisor": (137, r"instance 1 \(pid {program} on localhost, replica 1\) was lost: .*pid {supervisor}"),
    "holder": (
        137,
        r"instance 1 \(pid {program} .*\) was lost: the parent of its supervisor \(pid {holder}\) was killed",
    ),
    "manager": (None, r"mpirun \(pid {mpirun}\) (exited with code|was killed by signal)"),
    "mpirun": (137, r"mpirun \(pid {mpirun}\) was killed by signal 9 \(SIGKILL\)"),
}


@pytest.mark.parametrize("victim", DEATHS)
def test_a_kill_of_any_process_ends_the_job_with_the_reason(launch, mpi, victim):
    code, text = DEATHS[victim]
    barrier = Barrier(launch, mpi)
    barrier.kill(victim)
    status, _, err = barrier.job.finish()
    assert status == code or (code is None and status > 0)
    assert re.search("poprun-py: " + text.format(**barrier.pids), err.decode())
    assert len(re.findall(r"poprun-py: (?!mpirun wrote)", err.decode())) == 1
    barrier.assert_clean()


def test_an_instance_that_was_killed_is_blamed_though_the_crash_of_its_peer_is_reported_first(launch, mpi):
    """The supervisor of the killed one is late: it gets the launcher's order to stop before it checks its program."""
    job = launch(
        "--mpi", mpi, "--num-instances", "2", sys.executable, str(PROGRAMS / "poprun_py/crashing_without_peers.py")
    )
    pids = {int(match[1]): int(match[2]) for match in job.read_until(r"READY (\d) (\d+)", 2)}
    supervisor = job.processes()[pids[1]]
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(pids[1], signal.SIGKILL)
    patience = Patience(20)
    while processes.is_alive(pids[0]):  # it crashes, and is reaped
        assert not patience.is_over
    time.sleep(0.1)
    os.kill(supervisor, signal.SIGCONT)
    status, _, err = job.finish()
    assert f"instance 1 (pid {pids[1]} on localhost, replica 1) was killed by signal 9 (SIGKILL)" in err.decode()
    assert status == 128 + signal.SIGKILL
    job.assert_nothing_left()


def test_a_group_that_is_killed_may_have_been_killed_by_the_mpi_so_that_no_instance_is_blamed(launch, mpi):
    barrier = Barrier(launch, mpi)
    os.killpg(os.getpgid(barrier.pids["holder"]), signal.SIGKILL)
    status, _, err = barrier.job.finish()
    assert status > 0
    assert re.search(rb"poprun-py: mpirun \(pid \d+\) exited with code \d+", err)
    barrier.assert_clean()


def test_the_launcher_is_killed_and_everything_goes_with_it(launch, mpi):
    barrier = Barrier(launch, mpi)
    barrier.kill("launcher")
    barrier.assert_clean()


@sampled_with_mpi(number=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_user_s_signals_end_the_job_in_order(launch, mpi, number):
    barrier = Barrier(launch, mpi)  # whose programs end on any of these well before the grace period is over
    barrier.kill("launcher", number)
    status, _, err = barrier.job.finish()
    assert status == 128 + number
    assert b"poprun-py: the job ends on " + signal.Signals(number).name.encode() in err
    barrier.assert_clean()


def test_a_segment_whose_maker_died_while_it_made_it_is_removed(launch):
    name = f"mpich_shm_{os.getpid():x}_9"
    status, _, err = launch("-v", *ENDING, "die_while_a_segment_is_made", name).finish()
    assert status == 137
    assert not Path("/dev/shm", name).exists(), err


def test_programs_may_tidy_up_after_ctrl_c(launch):
    job = launch("--num-instances", "2", *ENDING, "tidy_up")
    job.read_until("READY", 2)
    job.process.send_signal(signal.SIGINT)
    code, out, _ = job.finish()
    assert code == 130
    assert out.count(b"tidied up") == 2


def test_a_second_ctrl_c_ends_it_at_once(launch, mpi):
    job = launch("--mpi", mpi, "--grace", "100", "--num-instances", "2", *ENDING, "continue_after_ctrl_c")
    job.read_until("READY", 2)
    job.process.send_signal(signal.SIGINT)
    job.read_until("SEEN", 2)
    job.process.send_signal(signal.SIGINT)
    assert job.finish(timeout=90)[0] == 130
    job.assert_nothing_left()


def test_programs_that_ignore_signals_are_killed(launch, mpi):
    script = (
        "trap '' TERM INT HUP; if [ $POPDIST_REPLICA_INDEX_OFFSET = 1 ]; then exit 3; fi; while :; do sleep 1; done"
    )
    job = launch("--mpi", mpi, "--num-instances", "4", "sh", "-c", script)
    code, _, err = job.finish(timeout=250)
    assert code == 3
    assert re.search(rb"poprun-py: instance 1 .* exited with code 3\n$", err)
    job.assert_nothing_left()


def test_an_exception_shows_its_traceback_and_one_line_of_ours(launch, mpi):
    code, _, err = launch("--mpi", mpi, "--num-instances", "2", *ENDING, "raise_in_instance_1").finish()
    lines = err.decode().splitlines()
    assert code == 1
    assert lines[0] == "[1,1]<stderr>:Traceback (most recent call last):"
    assert lines[-2] == "[1,1]<stderr>:ValueError: my mistake"
    assert re.match(r"poprun-py: instance 1 \(pid \d+ on localhost, replica 1\) exited with code 1", lines[-1])
    assert lines[-1].endswith("exited with code 1: ValueError: my mistake (endings.py:27, in raise_in_instance_1)")
    assert sum("poprun-py" in line for line in lines) == 1


def test_the_last_lines_of_a_hidden_instance_are_shown_when_it_fails(launch):
    script = "echo $POPDIST_REPLICA_INDEX_OFFSET says >&2; test $POPDIST_REPLICA_INDEX_OFFSET = 0 && sleep 60; exit 4"
    code, _, err = launch("--num-instances", "2", "--only-output-from-instance", "0", "sh", "-c", script).finish()
    assert code == 4
    quoted = rb"poprun-py: instance 1 wrote last to stderr:\n    1 says\n$"
    assert re.search(rb"poprun-py: instance 1 .* exited with code 4: 1 says\n" + quoted, err)


def test_mpi_abort_names_the_instance_and_its_code(launch, mpi):
    job = launch("--mpi", mpi, "--num-instances", "2", *ENDING, "abort_in_instance_1")
    code, _, err = job.finish()
    assert code == 7
    assert re.search(rb"poprun-py: instance 1 .* (exited|called MPI_Abort) with code 7", err)
    job.assert_nothing_left()


def test_a_program_that_raises_and_hangs_in_mpi_finalize_ends_the_job(launch, mpi):
    job = launch("--mpi", mpi, "--num-instances", "2", *ENDING, "raise_with_mpi")
    code, _, err = job.finish(timeout=250)
    assert code == 1
    last = err.decode().splitlines()[-1]
    assert re.match(r"poprun-py: instance 1 \(pid .*\) raised an exception and then waited in MPI_Finalize", last)
    assert last.endswith("ValueError: mine (endings.py:44, in raise_with_mpi)")
    job.assert_nothing_left()


def test_a_time_limit_names_instances_that_wait_in_mpi_finalize(launch):
    job = launch("--timeout", "8", "--num-instances", "2", *ENDING, "exit_with_mpi")
    code, _, err = job.finish()
    assert code == 124
    assert b"(--timeout); instance 1 has ended and waits in MPI_Finalize for the others" in err
    job.assert_nothing_left()


def test_a_program_that_prints_a_traceback_and_continues_is_left_alone(launch):
    code, out, _ = launch("--num-instances", "2", *ENDING, "print_a_traceback_and_continue").finish()
    assert (code, out.count(b"fine")) == (0, 2)


def test_a_time_limit(launch, mpi):
    job = launch("--mpi", mpi, "--timeout", "1.5", "--num-instances", "2", "sleep", "60")
    code, _, err = job.finish()
    assert code == 124
    assert b"poprun-py: the job did not end within 1.5 s (--timeout)" in err
    job.assert_nothing_left()


def test_a_reader_that_leaves_ends_the_job(launch):
    job = launch("yes")
    job.read_until("y", 5)
    assert job.process.stdout
    job.process.stdout.close()
    assert job.process.wait(30) == 141
    job.assert_nothing_left()


def test_a_file_that_only_looks_like_a_program(launch, tmp_path):
    (tmp_path / "odd").write_bytes(b"\x7fnothing")
    (tmp_path / "odd").chmod(0o755)
    job = launch("--num-instances", "2", "./odd")
    code, _, err = job.finish()
    assert code == 126
    assert re.search(rb"could not be started: Exec format error: .*/odd", err)
    job.assert_nothing_left()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(["nonesuch"], 127, "nonesuch cannot be run: it is not on PATH", id="program"),
        pytest.param(["./nonesuch"], 127, "no such file", id="path"),
        pytest.param(["--num-instances=3", "--num-replicas=4", "true"], 2, "use 1, 2 or 4 instances", id="layout"),
        pytest.param(["--num-instances", "0", "true"], 2, "at least 1", id="value"),
        pytest.param(["--nonsense", "true"], 2, "--nonsense is not an option", id="option"),
        pytest.param(["--mpi", "/nowhere", "true"], 2, "/nowhere", id="MPI"),
        pytest.param([], 2, "no program", id="nothing"),
    ],
)
def test_mistakes_are_reported_in_one_line_and_nothing_is_started(arguments, code, text, capsys, monkeypatch):
    monkeypatch.setattr(os, "fork", None)
    status = main(["--max-restarts", "3", *arguments] if arguments else [])
    out, err = capsys.readouterr()
    assert (status, out) == (code, "")
    assert re.fullmatch(rf"poprun-py: .*{re.escape(text)}.*\n", err)


def test_the_launcher_s_exit_code_is_that_of_its_process(launch):
    assert launch("nonesuch").finish()[0] == 127


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small /dev/shm: needs root")
def test_a_dev_shm_that_is_too_small_for_mpi_is_named(mpi, tmp_path):
    """MPICH writes to missing memory (SIGBUS); Open MPI finds no transport, and reports that to its daemon."""
    small = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    command = [
        str(Path(sys.executable).with_name("poprun-py")),
        "--mpi",
        mpi,
        "--num-instances",
        "2",
        sys.executable,
        IN_A_BARRIER,
    ]
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", small, "x", *command],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode in (128 + signal.SIGBUS, 14), ended.stderr
    assert re.search(r"(SIGBUS\)|exited with code 14): /dev/shm may be too small: 1 MiB, of which", ended.stderr)
    assert ("mpirun wrote last:" in ended.stderr) == (ended.returncode == 14)


@pytest.mark.parametrize(
    ("limit", "words", "said"),
    [
        ("ulimit -n 10", ["true"], r"a job of 1 instance needs \d+ open files, and 10 are allowed .*ulimit -n"),
        ("ulimit -v 1000000", ["--import-config", "/dev/zero", "true"], r"--import-config /dev/zero: .* expected"),
    ],
    ids=["few open files", "a file without end"],
)
def test_limits_of_the_system_are_named_before_anything_starts(limit, words, said):
    command = ["sh", "-c", f'{limit} && exec "$@"', "sh", str(Path(sys.executable).with_name("poprun-py")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert re.search(said, done.stderr), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.returncode


_HIDDEN = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /proc && exec "$@"', "sh"]


@pytest.mark.skipif(os.geteuid() != 0, reason="hides /proc: needs root")
@pytest.mark.parametrize("what", ["launcher", "supervisor"])
def test_a_host_without_proc_is_named(what):
    supervisor = [sys.executable, "-I", "-S", str(Path(poprun_py.__path__[0], "host/supervisor_main.py"))]
    launcher = [str(Path(sys.executable).with_name("poprun-py")), "--num-instances", "2", "true"]
    command = [*_HIDDEN, *(launcher if what == "launcher" else supervisor)]
    folders = [Path(module.__path__[0]).parent for module in (poprun_py, msgpack)]
    environment = os.environ | {"POPRUN_PY_PATH": ":".join(map(str, folders))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert re.fullmatch(r"poprun-py: .*/proc does not list this process, .*; mount it: .*\n", done.stderr)
    assert done.returncode == (2 if what == "launcher" else -signal.SIGKILL)  # which ends the job with any MPI
