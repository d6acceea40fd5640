"""Stages with concurrent parts, and batch serialisation: the bits of the plain run, and the real order of work."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.errors import EmulatorError
from ipu_emu.ops import TABLE
from ipu_emu.popart import RecomputationType
from ipu_emu.program.instructions import Pipeline
from tests.ipu_emu.helpers.pipelined_models import EXPLICIT, KEPT, PIPELINE, Tower, threads

CONCURRENT: dict[str, Any] = {"pipelineConcurrentStages": True}
MEAN = popart.ReductionType.Mean


class Fork(Tower):
    """Three stages; the one in the middle has a part on IPU 1 and one on IPU 2."""

    def __init__(self, ipus: tuple[int, int] = (1, 2)) -> None:
        super().__init__(1, plain=True)
        self.builder = builder = popart.Builder()
        self.weights, random = {}, np.random.default_rng(0)
        self.x = builder.addInputTensor(popart.TensorInfo(np.float32, [6, 8]))
        self.labels = builder.addInputTensor("INT32", [6])
        self.ipus = [0, *ipus, 3]
        middle = []
        with builder.virtualGraph(0), builder.pipelineStage(0):
            y = self.block(builder, self.x, "", 0, random, True)
        for stage, ipu in enumerate(ipus, start=1):
            with builder.virtualGraph(ipu), builder.pipelineStage(1):
                middle.append(self.block(builder, y, y, stage, random, False))
        with builder.virtualGraph(3), builder.pipelineStage(2):
            self.y = self.block(builder, builder.aiOnnx.add(middle), "", 3, random, True)
            self.loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([self.y]), self.labels])


def same(actual: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert actual.keys() == want.keys()
    for id, value in want.items():
        np.testing.assert_array_equal(actual[id], value, err_msg=id)


HOW: dict[str, dict[str, Any]] = {
    "popart": PIPELINE,
    "explicit": EXPLICIT | {"autoRecomputation": RecomputationType.Standard},
    "grouped": PIPELINE | {"pipelineSchedule": "grouped"} | KEPT["off chip"],
    "interleaved": PIPELINE | {"pipelineSchedule": "interleaved", "autoRecomputation": RecomputationType.Pipeline},
    "sequential": PIPELINE | {"pipelineSchedule": "sequential"} | KEPT["states shared"],
}


@pytest.mark.parametrize("R", [1, 2])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.filterwarnings("ignore:Replicated tensor sharding has no effect")
def test_concurrent_parts_change_no_bit(monkeypatch: pytest.MonkeyPatch, how: str, R: int) -> None:
    want = Fork().trained(A=12, R=R)
    threads(monkeypatch, 4)
    same(Fork().trained(A=12, R=R, **HOW[how], **CONCURRENT), want)


def test_concurrent_parts_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits in its layer until the other is in its layer, eight times."""
    threads(monkeypatch, 4)
    together, entry = Barrier(2, timeout=250), TABLE.table["", "Gemm"]

    def kernel(bound: Any) -> Any:
        step = entry.kernel(bound)

        def run() -> None:
            together.wait()
            step()

        return run if {"w1", "w2"} & set(bound.node.op.inputs) else step

    with monkeypatch.context() as patched:
        patched.setitem(TABLE.table, ("", "Gemm"), replace(entry, kernel=kernel))
        session = Fork().session(A=8, **PIPELINE, **CONCURRENT)
    fork = Fork()
    session.run(popart.PyStepIO(fork.data(0, 1, 8, 1), session.initAnchorArrays()))
    session.close()


def test_parts_that_read_each_other_are_refused() -> None:
    fork = Fork()
    with fork.builder.virtualGraph(2), fork.builder.pipelineStage(2):
        fork.builder.aiOnnx.tanh([fork.y])
    with pytest.raises(EmulatorError, match="concurrent parts of a stage work at the same time"):
        fork.session(A=8, **PIPELINE, **CONCURRENT)
    with pytest.raises(EmulatorError, match="have the same pipeline stage 1, but different virtual graph ids 1, 2"):
        Fork().session(A=8, **PIPELINE)


SERIAL = PIPELINE | {"pipelineSchedule": "sequential"}


@pytest.mark.parametrize("cpus", [1, 2])
@pytest.mark.parametrize("recompute", [RecomputationType.NoRecompute, RecomputationType.Standard])
@pytest.mark.parametrize(("stages", "R", "at_a_time"), [(2, 1, 3), (3, 2, 2), (2, 1, 6)])
def test_batch_serialisation_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch, stages: int, R: int, at_a_time: int, recompute: RecomputationType, cpus: int
) -> None:
    want = Tower(stages).trained(A=6, R=R)
    threads(monkeypatch, cpus)
    tower = Tower(stages, [0] * stages)
    values = SERIAL | {"autoRecomputation": recompute}
    same(tower.trained(A=6, R=R, pipelineBatchSerialization=at_a_time, **values), want)


def test_a_stage_loops_over_micro_batches() -> None:
    session = Tower(2, [0, 0]).session(A=6, pipelineBatchSerialization=3, **SERIAL)
    (pipeline,) = [part for part in session.executable.program[0].body if isinstance(part, Pipeline)]
    assert str(pipeline) == "pipeline sequential, 6 micro-batches, 3 at a time"
    assert [[(task.stage, task.micro_batch) for task in slot] for slot in pipeline.slots()] == [
        [(stage, first + part) for part in range(3)] for first in (0, 3) for stage in range(4)
    ]
    session.close()


WRONG: list[tuple[dict[str, Any], list[int], str]] = [
    (
        {"pipelineSchedule": "grouped"},
        [0, 1],
        "Batch serialization is only supported with the `Sequential` schedule.",
    ),
    ({}, [0, 1], "When using batch serialization, all the pipeline stages need to be mapped to a single IPU."),
    ({"A": 8}, [0, 0], "8 micro-batches per step, but batch serialisation takes 3 at a time"),
    ({"pipelineBatchSerialization": 0}, [0, 0], "pipelineBatchSerialization is 0"),
    (
        {"accumulationAndReplicationReductionType": MEAN},
        [0, 0],
        "batch_serialization_iterations != 1 is only supported when reduction_method is "
        "GradientAccumulationReductionMethod.SUM",
    ),
]


@pytest.mark.parametrize(("values", "ipus", "text"), WRONG)
def test_refused_batch_serialisation(values: dict[str, Any], ipus: list[int], text: str) -> None:
    with pytest.raises(EmulatorError) as error:
        Tower(2, ipus).session(**{"A": 12, "pipelineBatchSerialization": 3, **SERIAL, **values})
    assert str(error.value).startswith(text)
