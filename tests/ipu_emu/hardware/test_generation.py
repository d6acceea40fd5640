"""Generations of IPUs: the numbers of the data sheets."""

from __future__ import annotations

import pytest

from ipu_emu.hardware import (
    BOW,
    GC2,
    GC200,
)


def test_peaks_are_those_of_the_data_sheets() -> None:
    peaks = {g.name: (g.peak(2) / 1e12, g.peak(4) / 1e12) for g in (GC2, GC200, BOW)}
    assert peaks["GC2"] == pytest.approx((124.5, 31.1), rel=1e-3)
    assert peaks["GC200"] == pytest.approx((250, 62.4), rel=5e-3)
    assert peaks["Bow"] == pytest.approx((350, 87.1), rel=5e-3)
    assert [round(g.exchange / 1e12, 2) for g in (GC2, GC200, BOW)] == [7.78, 7.83, 10.89]
    assert [g.sram // 2**20 for g in (GC2, GC200, BOW)] == [304, 897, 897]
