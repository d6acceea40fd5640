"""Units: a table of times has one unit, chosen by the largest; bytes and counts as text."""

from __future__ import annotations

import pytest

from gcl.drawing.units import TimeUnit, counted, decimal, memory


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 us"),
        (2.06e-5, "20.6 us"),
        (0.0099, "9,900.0 us"),
        (0.0115243, "11.5 ms"),
        (9.5, "9,500.0 ms"),
        (12.34, "12.3 s"),
        (7200.0, "7,200.0 s"),
    ],
    ids=str,
)
def test_a_time_is_printed_in_the_largest_unit_of_which_it_has_ten(seconds: float, text: str) -> None:
    assert TimeUnit.of(seconds).text(seconds) == text


def test_the_parts_of_a_time_are_printed_in_its_unit() -> None:
    assert TimeUnit.of(0.5).number(2e-5) == "0.0"
    assert TimeUnit.us.text(0.5) == "500,000.0 us"


def test_bytes_operations_and_counts_have_units() -> None:
    assert [memory(n) for n in (0, 1023, 1024, 3.1 * 2**20, 941 * 2**20, 2**40)] == [
        "0 B", "1,023 B", "1.00 KiB", "3.10 MiB", "941 MiB", "1.00 TiB",
    ]  # fmt: skip
    assert [decimal(n, "FLOP") for n in (999, 1.3e6, 8.284e9, 35.38e9)] == [
        "999 FLOP", "1.30 MFLOP", "8.28 GFLOP", "35.4 GFLOP",
    ]  # fmt: skip
    assert [counted(n, "micro-batch") for n in (1, 2)] == ["1 micro-batch", "2 micro-batches"]
