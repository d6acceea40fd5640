"""Times are printed in one unit, the one in which the largest of them reads well."""

from __future__ import annotations

import pytest

from gcl.drawing.units import TimeUnit


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
