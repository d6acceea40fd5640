"""Stages that recompute: fewer checkpoints for several micro-batches; a stash that several stages read is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.graph import StepPhase
from tests.ipu_emu.helpers.sessions import options

KINDS = popart.RecomputationType


def compiled(readers: Sequence[int], kind: popart.RecomputationType, ipus: Sequence[int] = (0, 1, 0, 1)) -> None:
    """Stage i is on ``ipus[i]``; the output of the first layer is read in its stage and in those of ``readers``."""
    builder = popart.Builder()

    def layer(id: str) -> str:
        w = builder.addInitializedInputTensor(np.full((2, 2), 0.5, np.float32))
        return builder.aiOnnx.tanh([builder.aiOnnx.exp([builder.aiOnnx.matmul([id, w])])])

    h, first = builder.addInputTensor("FLOAT", [2, 2]), ""
    for stage, ipu in enumerate(ipus):
        with builder.virtualGraph(ipu), builder.pipelineStage(stage):
            h = layer(h)
            if not stage:
                h, first = layer(h), h
            if stage in readers:
                h = builder.aiOnnx.add([h, layer(first)])
            if stage == len(ipus) - 1:
                h = builder.aiGraphcore.l1loss([h], 1.0)
    opts = options(
        enablePipelining=True, virtualGraphMode=popart.VirtualGraphMode.Manual, autoRecomputation=kind, A=8
    )
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 1472})
    flow = popart.DataFlow(1, [h])
    popart.TrainingSession(
        builder.getModelProto(), flow, h, popart.ConstSGD(0.1), device, userOptions=opts
    ).prepareDevice(loadEngine=False)


def test_a_stash_that_two_stages_restore() -> None:
    with pytest.raises(popart.popart_exception) as error:
        compiled([2], KINDS.Pipeline)
    assert error.value.args[0] == (
        "SessionOptions::autoRecomputation == RecomputationType::Pipeline is not compatible with the partitioning of "
        "operations over pipeline stages. To-stash Tensor 'Tanh:0' must be restored for recomputation of a "
        "descendent that is not a direct consumer on more than 1 PipelineStage, but this is currently not supported"
    )


def test_other_ways_to_recompute_and_other_readers() -> None:
    compiled([2], KINDS.Standard)
    compiled([], KINDS.Pipeline)
    compiled([1, 3], KINDS.Pipeline)  # each has a copy of its own
    compiled([2], KINDS.Pipeline, (0, 1, 0))  # the last stage is not made again


def kept_by_the_first_stage(layers: int, **how: Any) -> set[str]:
    """The results of a chain of equal layers that its backward pass reads and does not recompute."""
    builder = popart.Builder()
    y = builder.addInputTensor("FLOAT", [16, 16])
    with builder.virtualGraph(0), builder.pipelineStage(0):
        for _ in range(layers):
            w = builder.addInitializedInputTensor(np.ones((16, 16), np.float32))
            y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, w])])
    with builder.virtualGraph(1), builder.pipelineStage(1):
        loss = builder.aiGraphcore.l1loss([y], 1.0)
    opts = options(A=8, autoRecomputation=KINDS.Standard, virtualGraphMode=popart.VirtualGraphMode.Manual, **how)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 1472})
    model, flow = builder.getModelProto(), popart.DataFlow(1, [loss])
    session = popart.TrainingSession(model, flow, loss, popart.ConstSGD(0.1), device, userOptions=opts)
    session.prepareDevice()
    ops = session.executable.graph.ops
    activations = {id for op in ops if op.phase is StepPhase.FORWARD for id in op.outputs}
    return activations & {id for op in ops if op.phase is StepPhase.BACKWARD for id in op.inputs}


def test_a_stage_keeps_fewer_checkpoints_for_several_micro_batches_than_for_one() -> None:
    """Each is held three times in the pipeline, but one segment at a time is recomputed."""
    alone, pipelined = (kept_by_the_first_stage(27, enablePipelining=pipelined) for pipelined in (False, True))
    assert len(alone) >= 4
    assert 1 <= len(pipelined) < len(alone)
