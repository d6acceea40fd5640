"""Scaling: from 16 to 65,536 IPUs, weak and strong, with the ideal line and both laws."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.predict.calibration.profile import shipped
from ipu_emu.predict.job import Job
from ipu_emu.predict.scaling import at_sizes, sizes_of

RESNET = Job("resnet50", System.named("pod16"), replicas=16, batch=20, accumulation=16, recompute=True, bn_span=2)


def test_all_sizes() -> None:
    points = at_sizes(RESNET, shipped(), sizes_of("16..65536"), strong=False)
    assert [point.ipus for point in points] == [1 << power for power in range(4, 17)]
    for before, after in pairwise(points):
        assert before.prediction.throughput < after.prediction.throughput
        assert after.efficiency <= before.efficiency + 1e-12
    largest = points[-1].prediction
    collective = sum(largest.terms[name] for name in ("ipu_links", "gw_links", "fixed"))
    assert collective < 20e-3


def test_strong_scaling_keeps_the_global_batch_until_nothing_is_left_to_divide() -> None:
    points = at_sizes(RESNET, shipped(), sizes_of("16..1024"), strong=True)
    assert {point.prediction.job.global_batch for point in points} == {16 * 16 * 20}
    assert [point.prediction.job.accumulation for point in points] == [16, 8, 4, 2, 1]


def test_both_laws_start_from_the_constant_share_of_the_smallest_size() -> None:
    points = at_sizes(RESNET, shipped(), [16, 32, 64], strong=True)
    first, last = points[0], points[-1]
    assert first.amdahl == pytest.approx(first.prediction.throughput)
    assert first.gustafson == pytest.approx(first.prediction.throughput)
    assert last.amdahl < last.gustafson < last.ideal
    assert last.prediction.throughput == pytest.approx(last.amdahl, rel=0.1)


@pytest.mark.parametrize(("text", "sizes"), [("16..64", [16, 32, 64]), ("64,16", [16, 64]), ("4..4", [4])])
def test_sizes(text: str, sizes: list[int]) -> None:
    assert sizes_of(text) == sizes


@pytest.mark.parametrize("text", ["", "16..", "0..4", "64..16", "16..131072x", "65537"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(EmulatorError, match="--sizes"):
        sizes_of(text)


def test_mistakes() -> None:
    with pytest.raises(EmulatorError, match="cannot be divided into replicas"):
        at_sizes(replace(RESNET, ipus=4, replicas=2), shipped(), [4, 16], strong=False)
    with pytest.raises(EmulatorError, match="cannot be divided further"):
        at_sizes(replace(RESNET, accumulation=1), shipped(), [16, 32], strong=True)
