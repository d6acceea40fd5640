"""Pipelines: every schedule gives the bits of the plain run, whatever runs side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.pipelines import PIPELINE, Tower, threads

SCHEDULES = ("popart", "grouped", "interleaved", "sequential")


def assert_same(found: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert found.keys() == want.keys()
    for id in want:
        np.testing.assert_array_equal(found[id], want[id], err_msg=id)


@pytest.fixture(scope="module")
def plain() -> Any:
    """The plain run of a case, once."""
    known: dict[Any, dict[str, np.ndarray]] = {}

    def run(stages: int, dtype: Any, **values: Any) -> dict[str, np.ndarray]:
        key = (stages, dtype, *values.items())
        if key not in known:
            known[key] = Tower(stages, dtype=dtype).trained(**values)
        return known[key]

    return run


@pytest.mark.parametrize("R", [1, 2])
@pytest.mark.parametrize("stages", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_schedule_gives_the_bits_of_the_plain_run(
    monkeypatch: pytest.MonkeyPatch, plain: Any, kind: str, stages: int, R: int
) -> None:
    A = 4 * stages
    want = plain(stages, np.float32, bps=2, A=A, R=R)
    threads(monkeypatch, 3)
    assert_same(Tower(stages).trained(bps=2, A=A, R=R, pipelineSchedule=kind, **PIPELINE), want)
