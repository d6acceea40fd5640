"""scripts/hosts: several hosts on one machine for as long as a command runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.mpi_jobs import ROOT
from tests.helpers.network_namespaces import needs_hosts

SCRIPT = [sys.executable, str(ROOT / "scripts/hosts")]
FOLDERS = ("/run/netns", "/etc/netns", "/run/poprun-py-hosts")


def entries() -> list[list[str]]:
    """The content of the folders of namespaces, except that of other tests."""
    held = [os.listdir(folder) if Path(folder).is_dir() else [] for folder in FOLDERS]
    return [[name for name in names if not name.startswith("pp")] for names in held]


@needs_hosts
def test_a_job_runs_on_hosts_that_nobody_else_sees():
    before = entries()
    show = ["sh", "-c", "echo $PWD $(hostname); exit $(( 7 * POPDIST_REPLICA_INDEX_OFFSET ))"]
    job = [str(Path(sys.executable).parent / "poprun-py"), "--host", "h0,h1", "--num-instances", "2", *show]
    ended = subprocess.run([*SCRIPT, "2", *job], capture_output=True, text=True, timeout=100, check=False)
    assert sorted(ended.stdout.splitlines()) == [f"[1,0]<stdout>:{Path.cwd()} h0", f"[1,1]<stdout>:{Path.cwd()} h1"]
    assert ended.returncode == 7
    assert "on h1, replica 1) exited with code 7" in ended.stderr
    assert entries() == before


@needs_hosts
def test_the_hosts_and_all_that_runs_on_them_end_with_the_script():
    before = entries()
    hold, held = os.pipe()  # any process that still runs holds the other end
    command = [*SCRIPT, "2", "sh", "-c", "echo up; sleep 1000 & wait"]
    script = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[held])
    os.close(held)
    assert script.stdout
    assert script.stdout.readline() == b"up\n"
    script.send_signal(signal.SIGKILL)
    assert os.read(hold, 1) == b""
    assert script.wait() == -signal.SIGKILL
    assert entries() == before


@needs_hosts
def test_several_signals_end_it_as_one():
    script = subprocess.Popen(
        [*SCRIPT, "2", "sh", "-c", "echo up; exec sleep 1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert script.stdout
    assert script.stdout.readline() == b"up\n"
    while script.poll() is None:  # also if its command has already ended
        script.send_signal(signal.SIGTERM)
        time.sleep(0.005)
    assert script.communicate()[1] == b""
    assert script.returncode == 128 + signal.SIGTERM


def test_mistakes_are_refused_in_one_line():
    for words, why in ((["0"], "COUNT 0: give 1 to 64 hosts"), (["two"], "invalid int value: 'two'")):
        ended = subprocess.run([*SCRIPT, *words], capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 2
        assert why in ended.stderr.splitlines()[-1]
