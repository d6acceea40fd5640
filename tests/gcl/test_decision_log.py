"""Decision log: what is logged at each GCL_LOG_LEVEL, where, and that it costs nothing without a listener."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gcl
from gcl.decision_log import Logged
from gcl.scheduling.options import LogLevel
from tests.helpers.mpi_jobs import PROGRAMS, run_alone


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Restore the logger, which belongs to the process."""
    logger = logging.getLogger("gcl")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def work(**options: str) -> None:
    with gcl.connect(local_replicas=4, **options) as communicator:
        x = communicator.empty(1000)
        communicator.all_reduce(x, out=x)
        communicator.all_reduce(x, out=x)
        communicator.reduce_scatter(np.zeros((4, 10), np.float32))


def test_debug_logs_every_collective(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("GCL_LOG_LEVEL", "DEBUG")
    work()
    lines = said(caplog)
    assert [level for level, _ in lines] == ["INFO", "DEBUG", "DEBUG", "DEBUG", "INFO"]
    assert "replicas 0 to 3 (rank 0) of 4, groups of 4 with stride 1, transport inprocess, method auto" in lines[0][1]
    reduced = lines[1][1]
    assert reduced.startswith("rank 0: all_reduce(add, 1000 x float32), 4,000 bytes per replica, through inprocess, ")
    assert "allocated input, in place" in reduced
    assert "reduce_scatter by meet_in_middle_ring (4,000 bytes, below 1,245,184 in a ring of 4)" in reduced
    assert "us modelled" in reduced
    assert "us wall" in reduced
    assert "private input, allocated output" in lines[3][1]


def test_a_named_method_is_logged_as_requested(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GCL_LOG_LEVEL", "TRACE")
    work(method="clockwise_ring")
    text = "\n".join(line for _, line in said(caplog))
    assert "reduce_scatter by clockwise_ring (as requested), all_gather by clockwise_ring (as requested)" in text
    assert "rank 0: exchange 3    2  3  1  0" in text  # the drawing of the method


@pytest.mark.parametrize(("level", "expected"), [("INFO", ["INFO", "INFO"]), ("WARN", []), ("ERR", []), ("OFF", [])])
def test_levels(
    level: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GCL_LOG_LEVEL", level)
    work()
    assert [name for name, _ in said(caplog)] == expected


@pytest.mark.parametrize("level", list(LogLevel))
def test_only_levels_that_log_every_call_leave_the_fast_path(
    level: LogLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCL_LOG_LEVEL", str(level))
    with gcl.connect(local_replicas=2) as communicator:
        x = communicator.empty(8)
        communicator.all_reduce(x, out=x)
        path = communicator._dispatch.path
        assert bool(path.prepared) == (level not in (LogLevel.TRACE, LogLevel.DEBUG))
        assert isinstance(path, Logged) == (level is not LogLevel.OFF)


def test_a_failure_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("GCL_LOG_LEVEL", "ERR")
    communicator = gcl.connect(local_replicas=2)
    communicator.close()
    with pytest.raises(gcl.GclError):
        communicator.barrier()
    assert said(caplog) == [("ERROR", "rank 0: barrier failed: the communicator is closed; connect again")]


def test_without_the_variable_the_program_decides(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("GCL_LOG_LEVEL", raising=False)
    work()
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "gcl"):
        work()
    assert len(caplog.records) == 5


@pytest.mark.parametrize("name", ["GCL_GP_PATH", "GCL_LIBRARY_PATH", "useReplicatedImplementation"])
def test_variables_and_options_without_a_meaning_here_are_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name.startswith("GCL"):
        monkeypatch.setenv(name, "/opt/gcl/gp")
    else:
        monkeypatch.setenv("GCL_OPTIONS", json.dumps({name: True}))
    with pytest.warns(UserWarning, match=f"{name}.* has no effect"):
        work()


def test_importing_sets_nothing_up_and_lines_go_to_stderr(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/core/decision_log.py"
    ended = run_alone(program, tmp_path, environ={"GCL_LOG_LEVEL": "INFO"})
    assert ended.stdout == ""
    assert "gcl INFO rank 0 of 1: replicas 0 to 1" in ended.stderr
