"""Failure report: the messages about shared memory, on the launcher's host and on another, and about limits."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import pytest

from poprun_py.errors import PROCESS_LIMIT_ADVICE
from poprun_py.job.failure import InstanceEnd
from poprun_py.job.failure_report import Console, explain
from poprun_py.options.parser import parse
from poprun_py.plan.launch_plan import plan
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation


def said_of_a_bus_error(host: str) -> str:
    options = parse(["--num-instances", "1", "prog"])
    launch_plan = plan(options, machine=Machine(), installation=MpiInstallation("mpich", "m"), executable="/p")
    failure = InstanceEnd(replace(launch_plan.instances[0], host=host), 7, -signal.SIGBUS)
    said: list[bytes] = []
    screen = SimpleNamespace(stderr=said.append, has_color=False)
    delivery = SimpleNamespace(
        stderr_end=lambda rank: b"", last_lines=lambda rank: [], log_of_errors=lambda rank: None
    )
    job = SimpleNamespace(failure=failure, user_signal=0, why="")
    explain(job, delivery, Console(screen), starter="mpirun", starter_output=[])  # type: ignore[arg-type]
    return b"".join(said).decode()


@pytest.mark.parametrize("host", ["localhost", os.uname().nodename])
def test_a_bus_error_here_has_the_size_of_dev_shm(host: str) -> None:
    assert "/dev/shm may be too small: " in said_of_a_bus_error(host)


def test_a_bus_error_on_another_host_has_no_numbers_of_this_one() -> None:
    said = said_of_a_bus_error("elsewhere")
    assert "SIGBUS): /dev/shm of elsewhere may be too small (`df -h /dev/shm` there says how much is free)" in said
    assert "MiB" not in said


@pytest.mark.parametrize(
    ("missing", "words", "is_said"),
    [([1], "No network interfaces were found", True), ([], "ended", False), ([1], PROCESS_LIMIT_ADVICE, False)],
    ids=["not started", "all started", "said already"],
)
def test_a_limit_is_named_where_instances_have_not_started(missing: list[int], words: str, is_said: bool) -> None:
    said: list[bytes] = []
    job = SimpleNamespace(failure=None, user_signal=0, why="mpirun exited with code 213", missing=missing)
    explain(
        job,  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        Console(SimpleNamespace(stderr=said.append, has_color=False)),  # type: ignore[arg-type]
        starter="mpirun",
        starter_output=[words.encode()],
        shortage=lambda: "ulimit -u is 9",
    )
    lines = ["poprun-py: mpirun exited with code 213", "poprun-py: mpirun wrote last:", f"    {words}"]
    assert b"".join(said).decode().splitlines() == lines + ["poprun-py: ulimit -u is 9"] * is_said
