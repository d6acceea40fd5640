"""Measuring: rounds, times that programs print, failures, and a program whose terms are known, under the launcher."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.predict.experiment.fit import fit
from ipu_emu.predict.experiment.measuring import launched, measure, printed_use
from ipu_emu.predict.experiment.plan import Configuration, Plan
from ipu_emu.predict.experiment.step_use import StepUse

VALUES = 25_000
#: Sleeps 20 ms for each of 4 shares that its replicas have of a step, and 60 ms more; reduces ``VALUES`` numbers;
#: writes the median time that it slept, which is longer on a busy machine.
PROGRAM = f"""
import pathlib, statistics, sys, time
import numpy as np
import gcl
import popdist_py as popdist
from ipu_emu.trace import span
popdist.init()
communicator = gcl.connect()
share, slept = 4 * popdist.getNumLocalReplicas() / popdist.getNumTotalReplicas(), []
for _ in range(9):
    with span("step"):
        start = time.perf_counter()
        time.sleep(0.02 * share + 0.06)
        slept.append(time.perf_counter() - start)
        communicator.all_reduce(np.ones((1, {VALUES}), np.float32))
with open(pathlib.Path(sys.argv[1]) / f"slept{{popdist.getNumInstances()}}", "a") as file:
    file.write(f"{{statistics.median(slept)}}\\n")
"""


def test_rounds_are_interleaved_after_a_warm_up() -> None:
    order: list[str] = []

    def execute(configuration: Configuration, folder: Path, seconds: float) -> StepUse:
        order.append(configuration.name)
        return StepUse(1.0 if len(order) > 3 else 9.0, "recorder", samples=1.0)

    runs = measure(Plan.of(["a"], "1x1,1x2,2x2", (1,), seconds=60.0), execute)
    assert order == ["1x1", "1x2", "2x2"] * (1 + runs.rounds)
    assert runs.rounds == 3  # the intervals have no width
    assert runs.median(Configuration(1, 1), "seconds", range(3)) == 1.0


def test_a_slow_warm_up_counts_as_a_round() -> None:
    def execute(configuration: Configuration, folder: Path, seconds: float) -> StepUse:
        time.sleep(0.1)
        return StepUse(1.0)

    runs = measure(Plan.of(["a"], "1x1,2x2", (1,), seconds=0.2), execute)
    assert runs.rounds == 2
    assert {len(uses) for uses in runs.uses.values()} == {2}
    assert "counts as a round" in runs.notes[0]


@pytest.mark.parametrize(
    ("output", "seconds", "samples"),
    [
        ("step_seconds 0.5\nstep_seconds: 0.25", 0.25, 0),
        ("throughput    48,311 images/s", 1 / 48_311, 1),
        ("throughput 10\nstep_seconds=2e-3", 2e-3, 0),
    ],
)
def test_printed_times(output: str, seconds: float, samples: int) -> None:
    use = printed_use(output, ["train"])
    assert use is not None
    assert use.seconds == pytest.approx(seconds)
    assert use.samples == samples


@pytest.mark.parametrize("output", ["step_seconds 1e400", "step_seconds: -1", "step_seconds=0", "throughput -5"])
def test_impossible_times_are_refused(output: str) -> None:
    assert printed_use("done", ["train"]) is None
    with pytest.raises(EmulatorError, match=r"train printed .*, which is not possible"):
        printed_use(output, ["train"])


def test_failures_have_the_last_lines(tmp_path: Path) -> None:
    program = "import sys, time; time.sleep(9 * (sys.argv[1:] == ['wait'])); sys.exit('oh')"
    for words, timeout, said in (
        ((sys.executable, "-c", program), 60, "ended with 1: .*oh"),
        ((sys.executable, "-c", program, "wait"), 0.1, r"ran longer than 0\.1 s; use --timeout"),
    ):
        plan = Plan.of(words, "1x1,2x2", (1,), timeout=timeout)
        with pytest.raises(EmulatorError, match=said):
            launched(plan, tmp_path)(plan.base, tmp_path / "trace", 1.0)


def test_a_program_of_sleeps_and_collectives_is_taken_apart(tmp_path: Path) -> None:
    """t, c and bytes are recovered; 2 instances that sleep do not slow each other."""
    program = tmp_path / "sleeps.py"
    program.write_text(PROGRAM)
    sizes = (Configuration(1, 1), Configuration(2, 2))
    plan = Plan((str(program), str(tmp_path)), sizes, seconds=1.0, cores=2, scaling="strong")
    runs = measure(plan, launched(plan, tmp_path))
    alone, shared = (median(map(float, (tmp_path / f"slept{n}").read_text().split())) for n in (1, 2))
    assert alone >= 0.14
    terms = fit(runs).terms
    assert terms["t"].value == pytest.approx(2 * (alone - shared), rel=0.05)
    assert terms["c"].value == pytest.approx(2 * shared - alone, rel=0.05)
    two = runs.uses[Configuration(2, 2)][0]
    assert (two.calls, two.nbytes) == (pytest.approx(1, rel=0.05), pytest.approx(4 * VALUES, rel=0.05))
