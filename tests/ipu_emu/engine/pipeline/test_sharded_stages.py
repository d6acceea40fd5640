"""Sharded stages of a pipeline: ops on several IPUs that read each other's results; the bits of the plain run."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.popart import RecomputationType
from ipu_emu.program.instructions import Pipeline
from tests.helpers.sampling import sampled_product
from tests.ipu_emu.helpers.pipelined_models import EXPLICIT, KEPT, PIPELINE, Tower, threads

SHARDED: dict[str, Any] = {"pipelineShardedStages": True}


class Chain(Tower):
    """Three stages; the middle one is spread over several IPUs, by default those of its neighbours."""

    def __init__(self, middle: tuple[int, ...] = (0, 1, 2)) -> None:
        super().__init__(1, plain=True)
        self.builder = builder = popart.Builder()
        self.weights, random = {}, np.random.default_rng(0)
        self.x = builder.addInputTensor(popart.TensorInfo(np.float32, [6, 8]))
        self.labels = builder.addInputTensor("INT32", [6])
        self.ipus, first = [0, *middle, 2], ""
        with builder.virtualGraph(0), builder.pipelineStage(0):
            y = first = self.block(builder, self.x, "", 0, random, False)
        for number, ipu in enumerate(middle, start=1):
            with builder.virtualGraph(ipu), builder.pipelineStage(1):
                y = self.block(builder, y, first, number, random, False)
        with builder.virtualGraph(2), builder.pipelineStage(2):
            self.y = self.block(builder, y, "", 9, random, True)
            self.loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([self.y]), self.labels])


HOW: dict[str, dict[str, Any]] = {
    "popart": PIPELINE,
    "explicit": EXPLICIT | {"autoRecomputation": RecomputationType.Standard},
    "grouped": PIPELINE | {"pipelineSchedule": "grouped"} | KEPT["off chip"],
    "recomputed": PIPELINE | {"autoRecomputation": RecomputationType.Pipeline},
    "sequential": PIPELINE | {"pipelineSchedule": "sequential"} | KEPT["all shared and off chip"],
}


AXES = {"how": tuple(HOW), "R": (1, 2), "middle": ((0, 1, 2), (1, 2, 1), (2, 0, 1))}


def anchors_of(tower: Tower) -> dict[str, Any]:
    return dict.fromkeys((tower.loss, tower.y), popart.AnchorReturnType("All"))


@cache
def trained_on_one_ipu(R: int) -> dict[str, np.ndarray]:
    """The run on one IPU, which does not depend on the IPUs of the middle stage."""
    tower = Chain()
    return tower.trained(A=12, R=R, anchors=anchors_of(tower))


@pytest.mark.parametrize(tuple(AXES), sampled_product(AXES))
@pytest.mark.filterwarnings("ignore:Replicated tensor sharding has no effect")
def test_no_bit_differs(how: str, R: int, middle: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    _compare(middle, R, HOW[how], monkeypatch)


def test_sharding_changes_no_result_where_stages_may_not_share_an_ipu(monkeypatch: pytest.MonkeyPatch) -> None:
    _compare((1, 3, 1), 1, PIPELINE | {"pipelineSchedule": "interleaved"}, monkeypatch)


def _compare(middle: tuple[int, ...], R: int, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    threads(monkeypatch, (1 + max(2, *middle)) * R)
    tower = Chain(middle)
    weights = tower.trained(A=12, R=R, anchors=anchors_of(tower), **how, **SHARDED)
    for id, want in trained_on_one_ipu(R).items():
        np.testing.assert_array_equal(weights[id], want, err_msg=id)


def test_inference() -> None:
    tower = Chain()
    anchors = {tower.y: popart.AnchorReturnType("All")}
    results = []
    for values in ({}, {**PIPELINE, **SHARDED}):
        session = tower.session(bps=8, anchors=anchors, training=False, **values)
        arrays = session.initAnchorArrays()
        session.run(popart.PyStepIO(tower.data(0, 8, 1, 1), arrays))
        results.append(arrays[tower.y])
    np.testing.assert_array_equal(results[1], results[0])


def test_all_of_its_ipus_work_for_a_sharded_stage() -> None:
    session = Chain().session(A=12, **PIPELINE, **SHARDED)
    (pipeline,) = (part for part in session.executable.program[0].body if isinstance(part, Pipeline))
    assert [stage.ipus for stage in pipeline.stages] == [{0}, {0, 1, 2}, {2}, {0, 1, 2}, {0}]
    apart = Chain((1, 1, 1)).session(A=12, **PIPELINE)
    assert session.modelledSeconds()["total"] > apart.modelledSeconds()["total"]


def test_without_the_option_it_is_refused() -> None:
    with pytest.raises(
        popart.popart_exception, match=r"have the same pipeline stage 1, but different virtual graph ids"
    ):
        Chain().session(A=12, **PIPELINE)
    with pytest.raises(popart.popart_exception, match=r"which .* of the same pipeline stage 1 makes"):
        Chain().session(A=12, pipelineConcurrentStages=True, **PIPELINE)
