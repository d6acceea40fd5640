"""Occupancy with real processes: no IPU belongs to two, and ``ipu-emu info`` lists the process of each IPU."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.mpi_jobs import PROGRAMS, ROOT
from tests.helpers.warm_processes import EMULATOR, warm_python

#: Takes at most argv[2] devices of argv[1] IPUs, lists them in argv[3], and keeps them until argv[4] exists.
GREEDY = (PROGRAMS / "ipu_emu/all_devices.py").read_text()

Start = Callable[..., subprocess.Popen[bytes]]


def environ(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("IPU_EMU", "POPDIST"))}
    return inherited | {"IPU_EMU_CLAIMS": str(folder), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command whose processes find ``tmp_path/go`` at the end of the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command, env=environ(tmp_path), cwd=tmp_path))
        return started[-1]

    yield run
    (tmp_path / "go").touch()
    for process in started:
        assert process.wait(90) == 0


def appear(*paths: Path) -> list[list[list[int]]]:
    """The IPUs that the programs list, once all have listed them."""
    deadline = time.monotonic() + 150
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < deadline, "a program does not say what it has"
        time.sleep(0.05)
    return [json.loads(path.read_text()) for path in paths]


def info(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The users of IPUs, as data and as text."""
    command = [*warm_python(*EMULATOR), "-m", "ipu_emu", "info"]
    said = [
        subprocess.run([*command, *more], env=environ(folder), capture_output=True, text=True, check=True).stdout
        for more in (["--format", "json"], [])
    ]
    used: list[dict[str, Any]] = json.loads(said[0])["used"]
    return used, said[1]


def test_programs_of_a_user_never_have_the_same_ipus(tmp_path: Path, start: Start) -> None:
    """Two programs take as many devices of 2 of the 16 IPUs as they can, at most five each."""
    paths = [tmp_path / f"said{number}" for number in range(2)]
    programs = [start(sys.executable, "-c", GREEDY, "2", "5", str(path), str(tmp_path / "go")) for path in paths]
    had = appear(*paths)
    pieces = [tuple(piece) for program in had for piece in program]
    assert len(pieces) == len(set(pieces)) == 8
    assert all(piece == (piece[0], piece[0] + 1) for piece in pieces)
    used, text = info(tmp_path)
    by_program = {
        pid: sorted(ipu for claim in used if claim["pid"] == pid for ipu in claim["ipus"]) for pid in by_pid(used)
    }
    assert by_program == {
        program.pid: sorted(ipu for piece in pieces for ipu in piece)
        for program, pieces in zip(programs, had, strict=True)
        if pieces
    }
    assert all(f"pid {pid} (" in text for pid in by_program)


def by_pid(used: list[dict[str, Any]]) -> set[int]:
    return {claim["pid"] for claim in used}


def test_jobs_have_their_own_systems(tmp_path: Path, start: Start) -> None:
    """Jobs of two instances and of one, and a program without a job; each instance has the IPUs of its replicas."""
    launcher = str(Path(sys.executable).parent / "poprun-py")
    for instances in (1, 2):
        said = f"{tmp_path}/said{instances}.$POPDIST_REPLICA_INDEX_OFFSET"
        script = f'exec {shlex.join(warm_python(*EMULATOR))} -c "$0" 2 1 {said} {tmp_path}/go'
        counts = ["--num-instances", str(instances), "--num-replicas", str(2 * instances)]
        start(launcher, *counts, "sh", "-c", script, GREEDY)
    paths = [tmp_path / name for name in ("said1.0", "said2.0", "said2.2")]
    alone = start(sys.executable, "-c", GREEDY, "1", "1", str(tmp_path / "alone"), str(tmp_path / "go"))
    assert appear(*paths, tmp_path / "alone") == [[[0, 1]], [[0, 1]], [[2, 3]], [[0]]]
    used, text = info(tmp_path)
    jobs = {claim["job"] for claim in used}
    assert len(jobs) == 3
    assert [(claim["pid"], claim["ipus"]) for claim in used if claim["job"] is None] == [(alone.pid, [0])]
    of_jobs = ([claim["ipus"] for claim in used if claim["job"] == job] for job in jobs - {None})
    assert sorted(of_jobs) == [[[0, 1]], [[0, 1], [2, 3]]]
    assert text.count("poprun-py job on its own Pod16\n  IPUs 0-1: pid ") == 2
    assert f"* IPU 0: pid {alone.pid} (" in text
