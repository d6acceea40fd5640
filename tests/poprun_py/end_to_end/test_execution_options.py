"""Execution options: the cache of executables, offline mode, and a job in the launcher's process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.mpi_jobs import PROGRAMS

SCRIPTS = PROGRAMS / "poprun_py/in_process"
ADDITION = str(SCRIPTS / "addition.py")
CACHE = "cache=$POPDIST_EXECUTABLE_CACHE_PATH; echo $cache; stat -c %a $cache; touch $cache/x"


def test_without_a_cache_of_the_user_s_a_job_has_its_own_and_leaves_nothing_of_it(launch, mpi):
    code, out, err = launch("--mpi", mpi, "--num-instances", "2", "sh", "-c", CACHE).finish()
    assert code == 0, err
    lines = [line.partition(":")[2] for line in out.decode().splitlines()]
    [folder] = {line for line in lines if line.startswith("/")}
    assert lines.count("700") == 2
    assert not Path(folder).exists()


def test_a_cache_of_its_own_is_gone_also_when_the_launcher_is_killed(launch):
    job = launch("sh", "-c", "echo READY $POPDIST_EXECUTABLE_CACHE_PATH; sleep 60")
    [match] = job.read_until(r"READY (/\S+)", 1)
    assert Path(match[1]).is_dir()
    job.process.kill()
    job.assert_nothing_left()
    assert not Path(match[1]).exists()


def test_a_cache_that_is_named_is_used_and_kept(launch, tmp_path):
    (tmp_path / "cache").mkdir()
    code, out, _ = launch("--executable-cache-path", "cache", "sh", "-c", CACHE).finish()
    assert code == 0
    assert f"{tmp_path}/cache\n".encode() in out
    assert (tmp_path / "cache/x").exists()
    environment = {"POPDIST_EXECUTABLE_CACHE_PATH": f"{tmp_path}/cache"}
    assert f"{tmp_path}/cache\n".encode() in launch("sh", "-c", CACHE, **environment).finish()[1]


def test_offline_mode(launch):
    job = launch(
        "--offline-mode", "yes", "sh", "-c", "echo <$POPDIST_OFFLINE_MODE>".replace("<", "'<'").replace(">", "'>'")
    )
    assert job.finish()[1] == b"[1,0]<stdout>:<1>\n"


def in_process(launch, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    return launch("--backend", "inprocess", "--num-replicas", "2", *arguments).finish(stdin)


def test_in_process_a_script_runs_as_if_python_ran_it():
    shell = f'exec {Path(sys.executable).parent}/poprun-py --backend inprocess --num-replicas 2 "$@" $$'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", sys.executable, "script.py"],
        cwd=SCRIPTS,
        capture_output=True,
        timeout=250,
        check=False,
    )
    pid = done.stdout.split(b"'")[3].decode()
    assert done.stdout.decode() == f"__main__ ['script.py', '{pid}'] True 2\n"
    assert done.returncode == 3


def test_in_process_under_the_debugger(launch):
    code, out, _ = in_process(launch, sys.executable, "-m", "pdb", ADDITION, stdin=b"b 3\nc\np x\nq\n")
    assert code == 0
    assert b"(Pdb) 42" in out
    said = " ".join(launch("--help").finish()[1].decode().split())
    assert "as a debugger needs it: --backend inprocess python -m pdb train.py" in said


def test_in_process_the_debugger_may_also_hold_the_launcher(tmp_path):
    launcher = str(Path(sys.executable).parent / "poprun-py")
    command = [sys.executable, "-m", "pdb", launcher, "--backend", "inprocess", sys.executable, ADDITION]
    done = subprocess.run(
        command,
        input=b"b %b:3\nc\np x\nq\n" % os.fsencode(ADDITION),
        cwd=tmp_path,
        capture_output=True,
        timeout=250,
        check=False,
    )
    assert b"(Pdb) 42" in done.stdout


def test_in_process_other_programs_take_the_process_over(launch):
    code, out, err = in_process(launch, "sh", "-c", "echo $POPDIST_NUM_TOTAL_REPLICAS; exit 5")
    assert (code, out, err) == (5, b"2\n", b"")


def test_in_process_ctrl_c_is_a_keyboard_interrupt(launch):
    assert in_process(launch, sys.executable, str(SCRIPTS / "ctrl_c.py"))[:2] == (0, b"caught\n")


def test_in_process_is_one_instance_only(launch):
    code, _, err = launch("--backend", "inprocess", "--num-instances", "2", "true").finish()
    assert code == 2
    assert err.startswith(b"poprun-py: --backend inprocess --num-instances 2: ")
    assert os.fsdecode(err).count("\n") == 1
