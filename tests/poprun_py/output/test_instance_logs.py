"""--log-dir: all output of each instance, in files that only their owner can read."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import PROGRAMS

SCRIPT = r"echo out $POPDIST_REPLICA_INDEX_OFFSET; printf ' 1%%\r 2%%\r 3%%' >&2; printf '\377\n'; printf 'no end'"


def test_each_stream_has_a_file_also_of_instances_that_are_not_shown(launch, tmp_path):
    job = launch(
        "--num-instances", "2", "--only-output-from-instance", "0", "--log-dir", "logs/new", "sh", "-c", SCRIPT
    )
    code, out, _ = job.finish()
    assert code == 0
    assert out.count(b"[1,1]") == 0
    folder = tmp_path / "logs/new"
    for rank in range(2):
        assert (folder / f"instance-{rank}.stdout").read_bytes() == b"out %d\n\xff\nno end\n" % rank
        assert (folder / f"instance-{rank}.stderr").read_bytes() == b" 3%\n"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_every_byte_is_there_and_links_are_not_followed(launch, tmp_path):
    assert launch("--log-dir", ".", "sh", "-c", "seq 300000").finish()[0] == 0
    assert (tmp_path / "instance-0.stdout").read_text() == "".join(f"{n}\n" for n in range(1, 300001))
    (tmp_path / "instance-0.stdout").unlink()
    (tmp_path / "instance-0.stdout").symlink_to("/dev/full")
    code, _, err = launch("--log-dir", ".", "true").finish()
    assert code == 2
    assert b"poprun-py: --log-dir .: ./instance-0.stdout cannot be written: Too many levels of symbolic links" in err


def test_an_older_file_is_replaced_and_its_mode_too(launch, tmp_path):
    older = tmp_path / "instance-0.stdout"
    older.write_text("older and longer")
    older.chmod(0o644)
    assert launch("--log-dir", ".", "echo", "new").finish()[0] == 0
    assert older.read_text() == "new\n"
    assert stat.S_IMODE(older.stat().st_mode) == 0o600


def test_other_names_of_an_older_file_keep_their_content(launch, tmp_path):
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "instance-0.stdout").hardlink_to(tmp_path / "kept")
    assert launch("--log-dir", ".", "echo", "new").finish()[0] == 0
    assert (tmp_path / "instance-0.stdout").read_text() == "new\n"
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_pipe_that_nobody_reads_is_refused_at_once_and_one_that_is_read_gets_the_output(launch, tmp_path):
    os.mkfifo(tmp_path / "instance-0.stdout")
    code, _, err = launch("--log-dir", ".", "echo", "new").finish()
    assert code == 2
    assert b"--log-dir .: ./instance-0.stdout cannot be written: it is a pipe that nobody reads; name another" in err
    reader = os.open(tmp_path / "instance-0.stdout", os.O_RDONLY | os.O_NONBLOCK)
    assert launch("--log-dir", ".", "echo", "new").finish()[0] == 0
    assert os.read(reader, 10) == b"new\n"
    os.close(reader)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to others")
def test_a_file_of_another_user_is_refused_and_kept(launch, tmp_path):
    planted = tmp_path / "instance-0.stdout"
    planted.write_text("planted")
    planted.chmod(0o666)
    os.chown(planted, 65534, -1)
    code, _, err = launch("--log-dir", ".", "true").finish()
    assert code == 2
    assert b"--log-dir .: ./instance-0.stdout cannot be written: it belongs to user 65534; name another folder" in err
    assert planted.read_text() == "planted"
    assert stat.S_IMODE(planted.stat().st_mode) == 0o666


@pytest.mark.skipif(os.getuid() == 0 and not Path("/proc/sys").is_dir(), reason="nothing is forbidden to root here")
def test_a_folder_that_cannot_be_made_is_reported_and_nothing_is_started(launch):
    status, out, err = launch("--log-dir", "/proc/nowhere", "echo", "hi").finish()
    assert (status, out) == (2, b"")
    assert err.startswith(b"poprun-py: --log-dir /proc/nowhere: ")
    assert err.endswith(b"name another folder\n")
    assert err.count(b"\n") == 1


def test_a_failure_says_where_all_of_it_is(launch):
    program = (sys.executable, str(PROGRAMS / "poprun_py/endings.py"), "fail_after_100_lines")
    job = launch("--log-dir", "l", "--num-instances", "2", "--only-output-from-instance", "1", *program)
    code, _, err = job.finish()
    assert code == 5
    if b"poprun-py: instance 0" in err:  # either may be the first to fail
        assert b"poprun-py: instance 0 wrote last to stderr (all of it: l/instance-0.stderr):\n    80\n" in err


def test_a_second_job_is_refused_while_the_first_writes(launch, tmp_path):
    first = launch("--log-dir", "logs", "sh", "-c", "echo first; touch up; while [ ! -e end ]; do sleep 0.05; done")
    for _ in range(600):
        if (tmp_path / "up").exists():
            break
        time.sleep(0.05)
    code, out, err = launch("--log-dir", "logs", "echo", "second").finish()
    assert (code, out) == (2, b"")
    assert err == b"poprun-py: --log-dir logs: another job writes to it; name another folder\n"
    (tmp_path / "end").touch()
    assert first.finish()[0] == 0
    assert (tmp_path / "logs/instance-0.stdout").read_text() == "first\n"
    assert launch("--log-dir", "logs", "echo", "third").finish()[0] == 0
    assert (tmp_path / "logs/instance-0.stdout").read_text() == "third\n"
