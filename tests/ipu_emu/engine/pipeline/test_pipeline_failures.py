"""Failures inside a pipeline: the original error, no hang, no threads left, and advice in the session's error."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.errors import SessionError
from ipu_emu.ops import TABLE
from tests.helpers.mpi_jobs import PROGRAMS, run_job
from tests.helpers.warm_processes import EMULATOR
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower, threads

A = 8


def failing() -> None:
    raise ArithmeticError("stage 1 has failed")


def dying() -> None:
    raise SystemExit("stage 1 has gone")


def interrupting() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    sleep(0.3)


FAILURES: dict[str, tuple[Callable[[], None], type[BaseException], str]] = {
    "a stage that raises": (failing, ArithmeticError, "stage 1 has failed"),
    "a worker that dies": (dying, SystemExit, "stage 1 has gone"),
    "Ctrl-C": (interrupting, KeyboardInterrupt, "^$"),
}


def in_stage_1(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], None]) -> None:
    """Let the layer of stage 1 fail in its fifth micro-batch, in the session that is created next."""
    entry, calls = TABLE.table["", "Gemm"], iter(range(100))

    def kernel(bound: Any) -> Any:
        step = entry.kernel(bound)

        def run() -> None:
            if next(calls) == 4:
                fail()
            step()

        return run if "w1" in bound.node.op.inputs else step

    monkeypatch.setitem(TABLE.table, ("", "Gemm"), replace(entry, kernel=kernel))


def ipu_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("ipu-")}


@pytest.fixture(scope="module")
def want() -> dict[str, np.ndarray]:
    return Tower(3, plain=True).trained(A=A)


@pytest.mark.parametrize("cpus", [1, 2, 3])
@pytest.mark.parametrize("name", FAILURES)
def test_the_original_error_is_raised_and_the_session_cannot_continue(
    monkeypatch: pytest.MonkeyPatch, want: dict[str, np.ndarray], name: str, cpus: int
) -> None:
    fail, kind, text = FAILURES[name]
    threads(monkeypatch, cpus)
    before, tower = ipu_threads(), Tower(3, plain=True)
    with monkeypatch.context() as patched:
        in_stage_1(patched, fail)
        session = tower.session(A=A, **PIPELINE)
    assert len(ipu_threads() - before) == (cpus if cpus > 1 else 0)
    stepio = popart.PyStepIO(tower.data(0, 1, A, 1), session.initAnchorArrays())
    with pytest.raises(kind, match=text):
        session.run(stepio)
    assert not ipu_threads() - before
    with pytest.raises(SessionError, match=r"pipeline.*create a new session"):
        session.run(stepio)
    session.close()
    again = Tower(3, plain=True).trained(A=A, **PIPELINE)
    for id, value in want.items():
        np.testing.assert_array_equal(again[id], value, err_msg=id)


def test_a_feed_that_fails_in_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, 3)
    before, tower = ipu_threads(), Tower(3, plain=True)
    session = tower.session(A=A, **PIPELINE)
    data, calls = tower.data(0, 1, A, 1), iter(range(100))

    def next_input(id: str, prefetch: bool) -> np.ndarray:
        if next(calls) == 9:
            raise LookupError("no more data")
        return np.ascontiguousarray(data[id][0, 0, 0])

    stepio = popart.PyStepIOCallback(
        next_input, lambda id: None, lambda id: np.zeros((), np.float32), lambda id: None
    )
    with pytest.raises(LookupError, match="no more data"):
        session.run(stepio)
    assert not ipu_threads() - before


PROGRAM = PROGRAMS / "ipu_emu/dying_pipeline.py"


def test_an_instance_that_dies_in_its_pipeline_ends_the_others(tmp_path: Path) -> None:
    job = run_job(PROGRAM, tmp_path, until=1, modules=EMULATOR)
    assert job.codes[1] == 3, job.err
    assert job.codes[0] not in (0, 3)
    assert "finished" not in job.out[0]
