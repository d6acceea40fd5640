"""Times of schedules: the figures and formulas of the literature for balanced and unbalanced stages."""

from __future__ import annotations

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules import schedule
from ipu_emu.program.schedules.interleaved import interleaved_seconds
from ipu_emu.program.schedules.schedule_timing import Barrier, StageTimes, timing

UNEVEN = StageTimes((1, 2, 1, 1), (2, 2, 4, 2))
#: N, m: efficiencies of Grouped, Interleaved, Sequential for a backward twice as long as a forward.
EFFICIENCIES = {
    (2, 4): (0.800, 0.667, 0.5), (2, 8): (0.889, 0.706, 0.5), (2, 16): (0.941, 0.727, 0.5),
    (2, 32): (0.970, 0.738, 0.5),
    (4, 8): (0.727, 0.600, 0.25), (4, 16): (0.842, 0.667, 0.25), (4, 32): (0.914, 0.706, 0.25),
    (4, 64): (0.955, 0.727, 0.25), (8, 16): (0.696, 0.571, 0.125), (8, 32): (0.821, 0.649, 0.125),
    (8, 64): (0.901, 0.696, 0.125), (8, 128): (0.948, 0.722, 0.125),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "barrier", "total"),
    [
        ("grouped", Barrier.ONE, 91),
        ("grouped", Barrier.HALVES, 105),
        ("interleaved", Barrier.ONE, 106),
        ("sequential", Barrier.ONE, 240),
        ("sequential", Barrier.NONE, 240),
    ],
)
def test_uneven_stages(kind: str, barrier: Barrier, total: float) -> None:
    assert timing(schedule(kind, 4, 16, training=True), UNEVEN, barrier).total == total


@pytest.mark.parametrize(("stages", "count"), EFFICIENCIES)
def test_efficiencies_of_even_stages(stages: int, count: int) -> None:
    for kind, expected in zip(("grouped", "interleaved", "sequential"), EFFICIENCIES[stages, count], strict=True):
        result = timing(schedule(kind, stages, count, training=True), StageTimes.even(stages))
        assert result.efficiency == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("stages", range(1, 9))
def test_bubble_of_even_stages(stages: int) -> None:
    """(p - 1)/(m + p - 1): GPipe's and 1F1B's; Grouped and PopART have it with barriers, Interleaved without."""
    times = StageTimes.even(stages)
    for kind, barrier in (("grouped", Barrier.ONE), ("popart", Barrier.ONE), ("interleaved", Barrier.NONE)):
        for count in range(2 * stages, 65, 2 * stages):
            result = timing(schedule(kind, stages, count, training=True), times, barrier)
            assert 1 - result.efficiency == pytest.approx((stages - 1) / (count + stages - 1))
    count = 8 * stages
    result = timing(schedule("interleaved", stages, count, training=False), times)
    assert result.total == count + stages - 1


def test_interleaved_in_lock_step() -> None:
    for stages in range(2, 9):
        for f, b in ((1, 2), (3, 2), (1, 1)):
            times = StageTimes((f,) * stages, (b,) * stages)
            for count in range(stages, 65, stages):
                expected = stages * min(f, b) + (2 * count + stages - 2) * max(f, b)
                assert timing(schedule("interleaved", stages, count, training=True), times).total == expected


@pytest.mark.parametrize("stages", range(1, 9))
def test_interleaved_in_closed_form(stages: int) -> None:
    """Uneven stages, whose longest task is of another IPU in each slot."""
    tasks = [(1.0 + (5 * ipu) % 4, 2.0 + (7 * ipu) % 5) for ipu in range(stages)]
    forward, backward = zip(*tasks, strict=True)
    for count in (stages, 2 * stages, 7 * stages):
        drawn = timing(schedule("interleaved", stages, count, training=True), StageTimes(forward, backward))
        assert interleaved_seconds(tasks, count) == pytest.approx(drawn.total)


def test_recomputation_costs_a_forward_that_counts_for_nothing() -> None:
    times = StageTimes.even(4)
    plain = timing(schedule("sequential", 4, 8, training=True), times)
    again = timing(schedule("sequential", 4, 8, training=True, recompute=True), times)
    assert again.total == plain.total + 8 * 3
    assert again.useful == plain.useful
    grouped = timing(schedule("grouped", 4, 8, training=True, recompute=True), times)
    assert timing(schedule("grouped", 4, 16, training=True, recompute=True), times).total == grouped.total + 8 * 4


def test_invalid_times_are_refused() -> None:
    with pytest.raises(EmulatorError, match=r"2 forward.*1 backward"):
        StageTimes((1, 2), (1,))
    with pytest.raises(EmulatorError, match="must be at least 0"):
        StageTimes((1, -2), (1, 1))
