"""Tied tables: their sums over micro-batches have the same bits in every schedule; no pipeline stashes a table."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, SHARED, WHOLE, Tower, located, threads

OFF, ON = popart.TensorStorage.OffChip, popart.TensorStorage.OnChip
WORDS, WIDTH = 24, 8
SHARDED = {"virtualGraphMode": popart.VirtualGraphMode.Manual}
MEAN = {
    "accumulationAndReplicationReductionType": popart.ReductionType.Mean,
    "meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy.Running,
}
ADAM = popart.Adam({"defaultLearningRate": (0.01, False)})
CLIPPED = popart.SGD({"defaultLearningRate": (0.1, True)}, [popart.ClipNormSettings.clipAllWeights(0.1)])


class Words(Tower):
    """A table whose rows are looked up in the first of four stages, and multiplied with in the last one."""

    def __init__(self, ipus: tuple[int, ...] = (0, 1, 2, 0), dtype: Any = np.float32) -> None:
        random = np.random.default_rng(7)
        self.ipus, self.dtype, self.weights = list(ipus), dtype, {}
        self.builder = builder = popart.Builder()
        self.x = builder.addInputTensor("INT32", [6])
        self.labels = builder.addInputTensor("INT32", [6])
        table = self.weight(random.standard_normal((WORDS, WIDTH)) / 3, "table")
        for stage, ipu in enumerate(ipus):
            with builder.virtualGraph(ipu), builder.pipelineStage(stage):
                if stage == 0:
                    y = builder.aiOnnx.gather([table, self.x])
                elif stage < len(ipus) - 1:
                    w = self.weight(random.standard_normal((WIDTH, WIDTH)) / 3, f"w{stage}")
                    y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, w])])
                else:
                    y = builder.aiOnnx.matmul([y, builder.aiOnnx.transpose([table])])
                    self.loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([y]), self.labels])
        self.y = y

    def data(self, seed: int, bps: int, factor: int, replicas: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        shape = (bps, factor, replicas, 6)
        return {id: random.integers(0, WORDS, shape).astype(np.int32) for id in (self.x, self.labels)}


@cache
def plain(R: int = 1, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    return Words(dtype=dtype).trained(A=8, R=R, optimizer=ADAM)


def assert_same(values: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert values.keys() == want.keys()
    for id in want:
        np.testing.assert_array_equal(values[id], want[id], err_msg=id)


@pytest.mark.parametrize(
    ("ipus", "how"),
    [
        ((0, 1, 2, 0), SHARDED),
        ((0, 1, 2, 3), SHARDED),
        ((1, 0, 1, 0), SHARDED),
        ((0, 1, 2, 0), PIPELINE),
        ((1, 0, 2, 1), PIPELINE),
    ],
)
def test_placements_and_pipelines_give_the_same_bits(
    ipus: tuple[int, ...], how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads(monkeypatch, 2)
    assert_same(Words(ipus).trained(A=8, optimizer=ADAM, **how), plain())


@pytest.mark.parametrize("R", [1, 2])
@pytest.mark.parametrize(("ipus", "how"), [((0, 1, 2, 0), {}), ((0, 1, 2, 3), SHARDED), ((0, 1, 2, 0), PIPELINE)])
def test_sums_in_streaming_memory_and_sharded_states_give_the_same_bits(
    ipus: tuple[int, ...], how: dict[str, Any], R: int
) -> None:
    remedies: list[dict[str, Any]] = [located(OFF, WHOLE, "accumulator")]
    remedies += (
        [located(ON, SHARED, "optimizerState"), located(OFF, SHARED, "weight", "optimizerState")] if R > 1 else []
    )
    for remedy in remedies:
        assert_same(Words(ipus).trained(A=8, R=R, optimizer=ADAM, **how, **remedy), plain(R))


@pytest.mark.parametrize(
    "values", [MEAN, {"optimizer": CLIPPED}, {"autoRecomputation": popart.RecomputationType.Standard}]
)
def test_means_limits_of_norms_and_recomputation(values: dict[str, Any]) -> None:
    want = Words().trained(A=8, R=2, **values)
    assert_same(Words().trained(A=8, R=2, **values, **PIPELINE), want)
    assert_same(Words((0, 1, 2, 3)).trained(A=8, R=2, **values, **SHARDED), want)


def test_halves() -> None:
    assert_same(Words(dtype=np.float16).trained(A=8, optimizer=ADAM, **PIPELINE), plain(dtype=np.float16))


def test_stochastic_rounding_keeps_one_sum() -> None:
    values = {"A": 8, "optimizer": ADAM, "enableStochasticRounding": True}
    words = Words(dtype=np.float16)
    assert_same(words.trained(**values, **PIPELINE), Words(dtype=np.float16).trained(**values))
    assert "Accum___table/tied" not in words.session(**values).executable.graph.tensors


def test_the_sum_is_that_of_both_parts() -> None:
    """Compared with the gradients of micro-batches; anchoring these changes no bit of the weights."""
    words, rate = Words(), 0.1
    anchors = {"Gradient___table": popart.AnchorReturnType("All")}
    session = words.session(A=8, anchors=anchors, optimizer=popart.ConstSGD(rate), **PIPELINE)
    results = words.run(session, steps=1, A=8)
    parts = results["Gradient___table in step 0"].reshape(8, WORDS, WIDTH)
    np.testing.assert_allclose(results["table"], words.weights["table"] - rate * parts.sum(0), rtol=1e-5, atol=1e-6)
    assert_same(
        {"table": results["table"]}, {"table": words.trained(A=8, steps=1, optimizer=popart.ConstSGD(rate))["table"]}
    )


def test_a_pipeline_keeps_no_gradient_of_a_table() -> None:
    plan = Words().session(A=8, optimizer=ADAM, **PIPELINE).executable.plan
    tables = [
        placement
        for placement in plan.placements.values()
        if placement.tensor.shape in ((WORDS, WIDTH), (WIDTH, WORDS))
    ]
    assert tables
    assert all(table.places == 1 for table in tables)
    assert plan.placements["Accum___table/tied"].region == "persistent"


def test_an_anchored_accumulator_is_the_whole_sum() -> None:
    words = Words()
    anchors = {"Accum___table": popart.AnchorReturnType("Final"), "Gradient___table": popart.AnchorReturnType("All")}
    session = words.session(A=8, anchors=anchors, optimizer=popart.ConstSGD(0.1))
    results = words.run(session, steps=1, A=8)
    parts = results["Gradient___table in step 0"].reshape(8, WORDS, WIDTH)
    np.testing.assert_allclose(
        results["Accum___table in step 0"].reshape(WORDS, WIDTH), parts.sum(0), rtol=1e-5, atol=1e-6
    )


def test_the_ir_accumulates_both_parts_into_one() -> None:
    ir = Words().session(A=8, optimizer=ADAM)._serializeIr(popart.IrSerializationFormat.JSON)
    assert ir.count('"Accum___table"') >= 2
    assert "Accum___table/tied" not in ir
