"""Comparisons of two runs: words, scaling and plain data, with numbers that can be checked by hand."""

from __future__ import annotations

import pytest

from ipu_emu.trace.comparison import Comparison


def test_the_serial_fraction_is_that_of_karp_and_flatt() -> None:
    slower = Comparison({"compute": 0.9, "other": 0.1}, {"compute": 1.05, "other": 0.2}, (2, 8))
    assert slower.step_seconds == pytest.approx((1.0, 1.25))
    speedup = 3.2  # 4 times the work in 1.25 times the time
    assert slower.serial_fraction == pytest.approx((1 / speedup - 1 / 4) / (1 - 1 / 4))
    perfect = Comparison({"compute": 1.0}, {"compute": 1.0}, (2, 8))
    assert perfect.serial_fraction == pytest.approx(0)
    useless = Comparison({"compute": 1.0}, {"compute": 4.0}, (2, 8))
    assert useless.serial_fraction == pytest.approx(1)


@pytest.mark.parametrize(
    ("before", "after", "replicas"),
    [({"compute": 1.0}, {"compute": 1.0}, (4, 4)), ({"a": 1.0}, {"a": 1.0}, (4, 2)), ({}, {"a": 1.0}, (1, 2))],
)
def test_without_more_replicas_or_steps_nothing_is_said_of_scaling(
    before: dict[str, float], after: dict[str, float], replicas: tuple[int, int]
) -> None:
    assert Comparison(before, after, replicas).serial_fraction is None


def test_the_largest_change_is_first_and_trifles_are_left_out() -> None:
    before = {"compute": 0.5, "host I/O": 0.2, "trifle": 0.001, "gone": 0.1}
    after = {"compute": 0.7, "host I/O": 0.5, "trifle": 0.002, "new": 0.05}
    first, *rest = Comparison(before, after, (1, 1)).sentences()
    assert first == "A step takes 1.56 times as long: 801.000 ms, then 1252.000 ms"
    assert rest == [
        "host I/O takes 2.50 times as long: 200.000 ms, then 500.000 ms",
        "compute takes 1.40 times as long: 500.000 ms, then 700.000 ms",
        "gone is gone: 100.000 ms, then 0.000 ms",
        "new is new: 0.000 ms, then 50.000 ms",
    ]


def test_scaling_in_words() -> None:
    perfect = Comparison({"compute": 1.0}, {"compute": 1.25}, (2, 8))
    assert perfect.sentences()[-1] == (
        "With 4 times the replicas the throughput is 3.20 times as high (efficiency 80%); "
        "by Amdahl's law 8.3% of the work is serial"
    )


def test_runs_without_steps() -> None:
    assert Comparison({}, {}, (1, 1)).sentences() == ["One of the runs has no steps"]


def test_as_data() -> None:
    found = Comparison({"a": 1.0}, {"b": 2.0}, (1, 1), ["a note"]).data()
    assert found["step_seconds_by_category"] == {"a": [1.0, 0.0], "b": [0.0, 2.0]}
    assert (found["step_seconds"], found["serial_fraction"], found["notes"]) == ([1.0, 2.0], None, ["a note"])
