"""Recomputation: which tensors are computed again, how much memory that saves, and that no bit differs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from ipu_emu import models, popart
from ipu_emu.popart import RecomputationType, RecomputeType
from ipu_emu.program.memory_plan import TRANSIENT
from tests.helpers.sampling import sampled_product
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import device, options

KINDS = [kind for kind in RecomputationType if kind is not RecomputationType.NoRecompute]


def assert_same(values: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert values.keys() == want.keys()
    for id in want:
        np.testing.assert_array_equal(values[id], want[id], err_msg=id)


@cache
def plain(dtype: Any, A: int, R: int) -> dict[str, np.ndarray]:
    return Tower(3, dtype=dtype).trained(A=A, R=R)


def transformer(kind: RecomputationType, layers: int = 12) -> Any:
    model = models.gpt2(batch=2, layers=layers, width=32, heads=2, length=32, context=32, vocabulary=16)
    opts = options(autoRecomputation=kind)
    flow = popart.DataFlow(1, [model.loss])
    session = popart.TrainingSession(
        model.proto, flow, model.loss, popart.ConstSGD(0.1), device(opts), userOptions=opts
    )
    session.prepareDevice(loadEngine=False)
    return session


def repeated(session: Any) -> list[str]:
    lines = str(session.executable).splitlines()
    return [line.split()[1] for line in lines if line.strip().startswith("Compute Recomputed___")]


@pytest.mark.parametrize(
    ("kind", "R", "dtype"),
    sampled_product({"kind": KINDS, "R": (1, 2), "dtype": (np.float32, np.float16)}, strength=1),
)
def test_no_bit_differs(kind: RecomputationType, R: int, dtype: Any) -> None:
    assert_same(Tower(3, dtype=dtype).trained(A=2, R=R, autoRecomputation=kind), plain(dtype, 2, R))


def test_stochastic_rounding_and_random_tensors_are_drawn_alike() -> None:
    values = {"enableStochasticRounding": True, "A": 2}
    want = Tower(3, dtype=np.float16).trained(**values)
    trained = Tower(3, dtype=np.float16).trained(autoRecomputation=RecomputationType.RecomputeAll, **values)
    assert_same(trained, want)


@pytest.mark.parametrize(
    ("kind", "schedule"),
    sampled_product({"kind": KINDS, "schedule": ("popart", "grouped", "interleaved", "sequential")}, strength=1),
)
def test_no_bit_differs_in_a_pipeline(kind: RecomputationType, schedule: str) -> None:
    trained = Tower(3).trained(A=6, pipelineSchedule=schedule, autoRecomputation=kind, **PIPELINE)
    assert_same(trained, plain(np.float32, 6, 1))


def test_checkpoints_of_a_transformer_take_less_than_two_fifths() -> None:
    without = transformer(RecomputationType.NoRecompute).executable.plan.sizes[TRANSIENT]
    checkpoints = transformer(RecomputationType.Standard).executable.plan.sizes[TRANSIENT]
    assert checkpoints <= 0.4 * without


def test_norms_alone_are_repeated() -> None:
    names = repeated(transformer(RecomputationType.NormOnly, layers=2))
    assert names
    assert all("GroupNormalization" in name for name in names)


def test_a_pipeline_stashes_the_inputs_of_its_stages_only() -> None:
    def stashes(kind: RecomputationType) -> dict[str, int]:
        session = Tower(3).session(A=8, autoRecomputation=kind, **PIPELINE)
        return {id: p.places for id, p in session.executable.plan.placements.items() if p.places > 2}

    stashed = stashes(RecomputationType.Pipeline)
    # The input of stage 0, its output for stage 1 on both IPUs, and the tensor that skips stage 1.
    assert len(stashed) < len(stashes(RecomputationType.NoRecompute))
    assert not any("Gemm" in id or "Tanh" in id for id in stashed)


class Chain:
    """x -> tanh -> tanh -> ... -> loss, with a weight before the first tanh."""

    def __init__(self) -> None:
        self.builder = builder = popart.Builder()
        self.w = builder.addInitializedInputTensor(np.linspace(-1, 1, 64, dtype=np.float32))
        self.y = [builder.aiOnnx.tanh([self.w])]
        for _ in range(3):
            self.y.append(builder.aiOnnx.reducesum([builder.aiOnnx.exp([self.y[-1]])], [0]))
            self.y[-1] = builder.aiOnnx.mul([self.y[-2], self.y[-1]])
        self.loss = builder.aiGraphcore.identityloss([self.y[-1]])

    def session(self, **values: Any) -> Any:
        opts = options(**values)
        session = popart.TrainingSession(
            self.builder.getModelProto(),
            popart.DataFlow(1, [self.loss]),
            self.loss,
            popart.ConstSGD(0.1),
            device(opts),
            userOptions=opts,
        )
        session.prepareDevice()
        session.weightsFromHost()
        return session


def test_a_user_chooses_op_by_op() -> None:
    chain = Chain()
    chain.builder.recomputeOutputInBackwardPass(chain.y[0])
    assert chain.builder.getRecomputeOutputInBackwardPass(chain.y[0])
    assert repeated(chain.session()) == ["Recomputed___Tanh:0"]
    chain = Chain()
    chain.builder.recomputeOutput(chain.y[0], RecomputeType.Checkpoint)
    names = repeated(chain.session(autoRecomputation=RecomputationType.RecomputeAll))
    assert names
    assert "Recomputed___Tanh:0" not in names


def test_a_checkpoint_of_the_builder_is_kept() -> None:
    builder: Any = popart.Builder()
    w = builder.addInitializedInputTensor(np.ones(4, np.float32))
    with builder.recomputeOutput(RecomputeType.Recompute):
        y = builder.aiOnnx.tanh([w])
        (checkpoint,) = builder.checkpointOutput(y)
        z = builder.aiOnnx.exp([builder.aiOnnx.tanh([checkpoint])])
    chain = Chain()
    chain.builder, chain.loss = builder, builder.aiGraphcore.identityloss([z])
    assert checkpoint != y
    assert not any(checkpoint in name for name in repeated(chain.session()))


def test_a_stash_that_two_stages_would_restore_is_refused() -> None:
    tower = Tower(1)
    tower.builder, tower.ipus = popart.Builder(), [0, 1]
    builder: Any = tower.builder
    first = y = builder.addInitializedInputTensor(np.ones(4, np.float32))
    for stage in range(6):
        with builder.virtualGraph(stage % 2), builder.pipelineStage(stage):
            y = builder.aiOnnx.tanh([builder.aiOnnx.mul([y, first]) if stage in (2, 4) else y])
            y = builder.aiOnnx.exp([y])
            first = y if stage == 0 else first
            if stage == 5:
                tower.loss = builder.aiGraphcore.identityloss([y])
    with pytest.raises(popart.popart_exception, match="RecomputationType::Pipeline is not compatible with the part"):
        tower.session(A=12, autoRecomputation=RecomputationType.Pipeline, **PIPELINE)
