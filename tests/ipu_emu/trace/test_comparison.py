"""Comparisons of two runs: sentences, scaling and plain data, with numbers that can be checked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipu_emu import trace
from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.hardware import Device, DeviceKind, System
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.session.program_record import ProgramRecord
from ipu_emu.trace import read_run
from ipu_emu.trace.comparison import Comparison, compare
from ipu_emu.trace.findings import analyse


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
def test_without_more_replicas_or_steps_there_is_no_scaling(
    before: dict[str, float], after: dict[str, float], replicas: tuple[int, int]
) -> None:
    assert Comparison(before, after, replicas).serial_fraction is None


def test_the_largest_change_is_first_and_trifles_are_left_out() -> None:
    before = {"compute": 0.5, "host I/O": 0.2, "trifle": 0.001, "gone": 0.1}
    after = {"compute": 0.7, "host I/O": 0.5, "trifle": 0.002, "new": 0.05}
    first, *rest = Comparison(before, after, (1, 1)).sentences()
    assert first == "A step takes 1252.000 ms instead of 801.000 ms (1.56 times as long)"
    assert rest == [
        "host I/O takes 500.000 ms instead of 200.000 ms (2.50 times as long)",
        "compute takes 700.000 ms instead of 500.000 ms (1.40 times as long)",
        "gone takes 0.000 ms instead of 100.000 ms",
        "new takes 50.000 ms instead of 0.000 ms",
    ]


def test_scaling_in_words() -> None:
    perfect = Comparison({"compute": 1.0}, {"compute": 1.25}, (2, 8))
    assert perfect.sentences()[-1] == (
        "With 4 times the replicas the throughput is 3.20 times as high (efficiency 80%); "
        "by Amdahl's law 8.3% of the work is serial"
    )


def test_a_batch_that_is_divided_among_the_replicas_is_not_counted_as_more_work() -> None:
    divided = Comparison({"compute": 1.0}, {"compute": 0.6}, (1, 2), work=0.5)
    assert divided.serial_fraction == pytest.approx((0.6 - 0.5) / 0.5)
    assert divided.sentences()[-1] == (
        "With 2 times the replicas, each with 0.50 times the work in a step, the throughput is 1.67 times as high "
        "(efficiency 83%); by Amdahl's law 20.0% of the work is serial"
    )


def test_the_serial_fraction_is_at_most_one() -> None:
    slower = Comparison({"compute": 1.0}, {"compute": 3.0}, (1, 2), work=0.5)
    assert slower.sentences()[-1] == (
        "With 2 times the replicas, each with 0.50 times the work in a step, the throughput is 0.33 times as high "
        "(efficiency 17%); 1 replica alone is faster: additional replicas cost more time than they save"
    )
    slower = Comparison({"compute": 1.0}, {"compute": 3.0}, (2, 4), work=0.5)
    assert slower.sentences()[-1].endswith(
        "2 replicas alone are faster: additional replicas cost more time than they save"
    )


@pytest.mark.parametrize("known", [(True, True), (True, False)])
def test_the_work_of_a_replica_is_that_of_the_largest_program(known: tuple[bool, bool], tmp_path: Path) -> None:
    runs = []
    for name, batch, profiled in zip("ab", (64, 32), known, strict=True):
        trace.start(tmp_path / name)
        if profiled:
            record(batch)
        trace.stop()
        runs.append(analyse(read_run(tmp_path / name)))
    assert compare(*runs).work == pytest.approx(0.5 if all(known) else 1.0, rel=0.01)


def record(batch: int) -> None:
    """Compile a network for micro-batches of this size, and write its profile."""
    executable = CompileRequest("mlp", batch=batch).compiled(System.pod(16)).executable
    ProgramRecord.of(ModelledStep(executable, Device(DeviceKind.IPU, 0, 4, 1472, "ipu2"), 1, 1), "training")


def test_runs_without_steps() -> None:
    assert Comparison({}, {}, (1, 1)).sentences() == ["One of the runs has no steps"]


def test_as_data() -> None:
    facts = Comparison({"a": 1.0}, {"b": 2.0}, (1, 1), ["a note"]).data()
    assert facts["step_seconds_by_category"] == {"a": [1.0, 0.0], "b": [0.0, 2.0]}
    assert (facts["step_seconds"], facts["serial_fraction"], facts["notes"]) == ([1.0, 2.0], None, ["a note"])
