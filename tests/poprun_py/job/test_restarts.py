"""--max-restarts: what is started again, how often, and the variables of the instances."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import PROGRAMS


def test_a_job_that_fails_starts_again_until_it_succeeds(launch, mpi):
    script = "echo start $POPDIST_RESTART_COUNT; test $POPDIST_RESTART_COUNT = 2"
    job = launch("--mpi", mpi, "--max-restarts", "5", "sh", "-c", script)
    code, out, err = job.finish()
    assert code == 0
    assert out == b"[1,0]<stdout>:start 0\n[1,0]<stdout>:start 1\n[1,0]<stdout>:start 2\n"
    lines = [line for line in err.decode().splitlines() if line.startswith("poprun-py:")]
    assert [line.partition(") ")[2] for line in lines[::2]] == ["exited with code 1"] * 2
    assert lines[1::2] == [f"poprun-py: the job starts again (restart {n} of 5)" for n in (1, 2)]
    job.assert_nothing_left()


def test_the_whole_job_starts_again_and_in_the_end_the_failure_counts(launch):
    script = "echo up; test $POPDIST_REPLICA_INDEX_OFFSET = 1 && sleep 60; exit 7"
    job = launch("--num-instances", "2", "--max-restarts", "1", "--log-dir", "l", "sh", "-c", script)
    code, _, err = job.finish()
    assert code == 7
    assert err.count(b"starts again") == 1
    names = sorted(path.name for path in Path(job.cwd, "l").glob("*.stdout"))
    assert names == [f"instance-{rank}{infix}.stdout" for rank in range(2) for infix in (".restart-1", "")]


def test_killed_processes_are_a_reason_to_start_again(launch):
    program = (sys.executable, str(PROGRAMS / "poprun_py/endings.py"), "kill_the_supervisor_once")
    code, out, err = launch("--max-restarts", "1", *program).finish()
    assert code == 0, err
    assert out == b"[1,0]<stdout>:well\n"


def test_a_restart_says_that_input_is_not_repeated(launch):
    script = "read -r line; echo $line; test $POPDIST_RESTART_COUNT = 1"
    code, out, err = launch("--max-restarts", "1", "sh", "-c", script).finish(b"first\nsecond\n")
    assert code == 0
    assert out == b"[1,0]<stdout>:first\n[1,0]<stdout>:\n"
    assert b"(restart 1 of 1); input from stdin that was passed on before is not repeated\n" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_jobs_ended_by_the_user_are_not_restarted(launch, number):
    job = launch("--max-restarts", "3", "sh", "-c", "echo READY; sleep 60")
    job.read_until("READY", 1)
    job.process.send_signal(number)
    code, _, err = job.finish()
    assert code == 128 + number
    assert b"starts again" not in err


def test_a_job_that_takes_too_long_is_not_started_again(launch):
    status, _, err = launch("--max-restarts", "3", "--timeout", "1", "sleep", "60").finish()
    assert status == 124
    assert b"starts again" not in err


def test_a_file_that_is_no_program_is_not_started_again(launch, tmp_path):
    (tmp_path / "odd").write_bytes(b"\x7fnothing")
    (tmp_path / "odd").chmod(0o755)
    code, _, err = launch("--max-restarts", "3", "./odd").finish()
    assert code == 126
    assert b"starts again" not in err


def test_each_temporary_folder_that_cannot_be_used_is_named_with_the_reason(launch, tmp_path):
    planted = tmp_path / f"poprun-py.{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    code, _, err = launch("-v", "true", TMPDIR=str(tmp_path)).finish()
    assert code == 0, err
    reason = f"no folder below {tmp_path}: {planted}: it belongs to somebody else, or others may write to it\n"
    assert err.decode().count(reason) == 1
    assert b"runs without it" not in err
