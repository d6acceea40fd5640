"""Canary: it survives if only the parent of a supervisor is killed, and dies with the group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.helpers.mpi_jobs import PROGRAMS, ROOT


@pytest.mark.parametrize(
    ("kill", "first", "lives"),
    [(os.kill, 0, True), (os.killpg, 0, False), (os.kill, signal.SIGTERM, True), (os.kill, signal.SIGUSR1, False)],
    ids=[
        "the parent alone",
        "its group",
        "the parent after a signal that both survive",
        "after one that they do not",
    ],
)
def test_the_canary_shows_whether_the_group_was_killed(kill, first, lives):
    command = [sys.executable, str(PROGRAMS / "poprun_py/host/guarded_by_canary.py"), str(ROOT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        holder = int(process.stdout.readline())
        os.killpg(holder, first)
        kill(holder, signal.SIGKILL)
        assert process.stdout.read() == f"{lives}\n"
