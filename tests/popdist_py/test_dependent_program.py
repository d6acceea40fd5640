"""Dependent programs: no process of a measurement is left when the measuring command is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from popdist_py.dependent_program import dependent

SLOW = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(300)"


def processes_with(tag: str) -> list[int]:
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if tag.encode() in (folder / "environ").read_bytes():
                pids.append(int(folder.name))
        except OSError:  # of another user, or ended
            continue
    return pids


def wait_until(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_measurement_leaves_no_job(tmp_path: Path, signum: signal.Signals) -> None:
    program, started = tmp_path / "slow.py", tmp_path / "started"
    program.write_text(SLOW)
    (scratch := tmp_path / "scratch").mkdir()
    tag = f"DEPENDENT_TAG={tmp_path}"
    command = ["-m", "ipu_emu", "scale", "--run", "--sizes", "1x1,1x2", "--", sys.executable, program, started]
    process = subprocess.Popen(
        [sys.executable, *command],
        env=os.environ | {"DEPENDENT_TAG": str(tmp_path), "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert wait_until(started.exists, 60)
        process.send_signal(signum)
        process.wait(30)
        assert wait_until(lambda: not processes_with(tag), 20)
        assert signum is signal.SIGKILL or not list(scratch.glob("ipu-emu-*")), "files are left"
    finally:
        for pid in processes_with(tag):
            os.kill(pid, signal.SIGKILL)


def test_a_program_that_is_missing() -> None:
    with pytest.raises(FileNotFoundError, match="No such file"):
        dependent(["/absent/program"])


def test_the_exit_code_and_the_output_are_those_of_the_program() -> None:
    command = dependent([sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(7)", "-x", "a b"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "['-x', 'a b']\n")
