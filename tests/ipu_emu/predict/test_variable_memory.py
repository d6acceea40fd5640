"""Estimates: the examples of the literature, and the compiler's plan of the same model."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu import models
from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import BOW, GC2, System
from ipu_emu.predict import (
    Variables,
    batch_norm,
    convolution,
    dense,
    embedding,
    encoder_layer,
    ipus_needed,
    layer_norm,
    of_model,
)
from ipu_emu.program.memory_plan import region_of
from ipu_emu.session.footprint import footprints
from ipu_emu.session.memory_liveness import ESTIMATED, ipu_memories

POD = System.pod(16)


def test_layers() -> None:
    assert convolution((3, 3), 64, 128).trainable == (3 * 3 * 64 + 1) * 128
    assert convolution((7, 7), 3, 64, bias=False).trainable == 9408
    assert dense(1000, 10).trainable == 10_010
    assert (batch_norm(64).trainable, batch_norm(64).non_trainable) == (128, 128)
    assert layer_norm(768).trainable == 1536
    assert encoder_layer(768).trainable == 7_087_872
    bert = embedding(30522 + 512 + 2, 768) + layer_norm(768) + encoder_layer(768) * 12 + dense(768, 768)
    assert bert.trainable == 109_482_240


def test_convolutions_before_normalisation_have_no_bias() -> None:
    """ResNet-50 has 25,557,032 parameters; with a bias for each convolution it would have 25,583,592."""
    weights = models.named("resnet50").graph.tensors.values()
    shapes = [tensor.shape for tensor in weights if tensor.role.value == "weight" and len(tensor.shape) == 4]
    sums = [
        sum(convolution((w, h), inputs, filters, bias=bias).trainable for filters, inputs, h, w in shapes)
        for bias in (False, True)
    ]
    others = 2 * 26_560 + dense(2048, 1000).trainable
    assert [convolutions + others for convolutions in sums] == [25_557_032, 25_583_592]


def test_the_dense_layer_of_the_note() -> None:
    """Dense 1000 to 10 with Adam, 10 activations, a batch of 4: 60,100 values."""
    variables = Variables(dense(1000, 10), activations=10)
    assert variables.gradients(4) == 40
    assert variables.optimiser("adam") == variables.optimiser("lamb") == 20_020
    assert variables.training(4, batch=4, optimiser="adam", literal=True) == 240_400
    assert variables.training(4, batch=4, optimiser="adam") == 4 * (10_010 + 40 + 20_020 + 10_010)
    assert variables.training(2, batch=4, optimiser="adam", state_itemsize=4) == 2 * (2 * 10_010 + 40) + 4 * 20_020
    assert variables.inference(2) == 20_020
    assert variables.optimiser("sgd") == 0
    assert variables.optimiser("momentum") == 10_010


@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_the_plan_of_a_wide_network_is_what_was_estimated(optimiser: str) -> None:
    """Gradients of a batch are kept only with several micro-batches, so there are two."""
    network = models.mlp(batch=8, dtype=np.float32, seed=None)
    estimated = of_model(network).training(4, batch=8, optimiser=optimiser)
    executable = (
        CompileRequest("mlp", batch=8, dtype="float32", optimiser=optimiser, accumulation=2).compiled(POD).executable
    )
    planned = executable.plan.bytes_of(0)
    largest = max(tensor.nbytes for tensor in network.graph.tensors.values())
    assert estimated <= planned * 1.01
    assert planned <= estimated + 3.5 * largest, "more than the gradient of a layer and what it is made from"


def test_the_plan_for_inference_holds_the_parameters() -> None:
    network = models.resnet8(batch=1, dtype=np.float32, seed=None)
    (memory,) = ipu_memories(
        CompileRequest("resnet8", dtype="float32", training=False).compiled(POD).executable, POD.tiles_per_ipu
    )
    assert memory.parts["weights"] == of_model(network).inference(4)
    assert memory.parts["optimiser states"] == memory.parts["gradients"] == 0


def test_parts_and_lives_are_those_of_the_plan() -> None:
    wanted = CompileRequest("transformer", ipus=2, accumulation=4, schedule="popart", optimiser="adam")
    executable = wanted.compiled(POD).executable
    memories = ipu_memories(executable, POD.tiles_per_ipu)
    plan = executable.plan
    fixed_parts = [sum(memory.parts[part] for part in ESTIMATED) for memory in memories]
    held = [memory.total - more for memory, more in zip(memories, fixed_parts, strict=True)]
    scratch = [need.scratch for need in footprints(executable, POD.tiles_per_ipu)]
    assert [here + more for here, more in zip(held, scratch, strict=True)] == [plan.bytes_of(i) for i in (0, 1)]
    assert all(more > 0 for more in scratch)  # scratch of host kernels, which an IPU does not need
    for memory in memories:
        assert all(nbytes >= 0 for nbytes in memory.parts.values())
        assert memory.peak_live <= sum(memory.parts[part] for part in ("stashes", "FIFOs", "transient"))
        for time in range(0, len(memory.live), 97):
            lives = [
                life
                for life in plan.lives
                if life.region == region_of("transient", memory.ipu) and not life.is_scratch
            ]
            assert memory.live[time] == sum(life.size for life in lives if life.first <= time <= life.last)
    weights = sum(t.nbytes for t in models.named("transformer").graph.tensors.values() if t.role.value == "weight")
    assert sum(memory.parts["weights"] for memory in memories) == weights


def test_ipus_needed() -> None:
    assert ipus_needed(1, BOW) == 1
    assert ipus_needed(int(0.6 * GC2.sram) + 1, GC2) == 2
    assert ipus_needed(5 * GC2.sram, GC2, proportion=1) == 8
    with pytest.raises(EmulatorError, match="proportion 0"):
        ipus_needed(1, BOW, proportion=0)
    with pytest.raises(EmulatorError, match=r"'adagrad'.*sgd, momentum, lars, rmsprop"):
        Variables(dense(1, 1), 1).optimiser("adagrad")
