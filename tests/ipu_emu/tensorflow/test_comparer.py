"""Comparer: pipelines of every kind compared with a loop of TensorFlow on the CPU, and bit for bit with each other.

The product is optimizers x types x reductions x stages, each with every schedule x recomputation x memory.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.training_runs import Model, assert_close, assert_same, in_a_loop, on_cpu, on_ipu

OPTIMIZERS = ("descent", "momentum", "adam", "keras-sgd", "keras-rmsprop", "keras-adamw")
REDUCTIONS = ("SUM", "MEAN", "RUNNING_MEAN")
TOLERANCES = {np.float32: 1e-6, np.float16: 2e-3}

#: Schedule -> modes of recomputation that it has.
MODES = {
    "Grouped": (None, "RecomputeThenBackpropagate", "RecomputeAndBackpropagateInterleaved"),
    "Interleaved": (None, "RecomputeThenBackpropagate"),
    "Sequential": (None, "RecomputeAndBackpropagateInterleaved"),
}
OFFLOADS = ("offload_weight_update_variables", "offload_activations", "offload_gradient_accumulation_buffers")
#: Locations of tensors; replicas that shard optimizer states get the same data, so they compute the same as one.
MEMORY: dict[str, dict[str, Any]] = {
    "kept": {},
    "offloaded": dict.fromkeys(OFFLOADS, True),
    "divided": {**dict.fromkeys(OFFLOADS, True), "replicated_optimizer_state_sharding": True},
}
VARIANTS = [(schedule, mode, memory) for schedule, modes in MODES.items() for mode in modes for memory in MEMORY]

CASES = list(product(OPTIMIZERS, TOLERANCES, REDUCTIONS, range(2, 6)))
#: Cases of the sample: every optimizer, type, reduction and number of stages. Together they have all variants.
SAMPLE = (
    ("descent", np.float32, "SUM", 2),
    ("momentum", np.float16, "MEAN", 3),
    ("adam", np.float32, "RUNNING_MEAN", 4),
    ("keras-sgd", np.float16, "SUM", 5),
    ("keras-rmsprop", np.float32, "MEAN", 2),
    ("keras-adamw", np.float32, "RUNNING_MEAN", 3),
)


def named(case: tuple[Any, ...]) -> str:
    return "-".join(str(getattr(part, "__name__", part)) for part in case)


def parameters(cases: Any, sample: Any) -> list[Any]:
    marks = {case: () if case in sample else pytest.mark.full for case in cases}
    return [pytest.param(*case, id=named(case), marks=mark) for case, mark in marks.items()]


@pytest.mark.parametrize(("optimizer", "dtype", "reduction", "stages"), parameters(CASES, SAMPLE))
def test_a_pipeline_equals_a_loop_of_plain_tensorflow(
    tf: Any, ipu: Any, configure: Any, full: bool, optimizer: str, dtype: Any, reduction: str, stages: int
) -> None:
    model = Model(stages, dtype, count=2 * stages)
    case = (optimizer, dtype, reduction, stages)
    variants = VARIANTS if full else VARIANTS[SAMPLE.index(case) :: len(SAMPLE)]
    first = trained(tf, ipu, configure, model, optimizer, reduction, VARIANTS[0])
    assert_close(first, on_cpu(tf, model, optimizer, reduction), TOLERANCES[dtype])
    for variant in variants:
        assert_same(trained(tf, ipu, configure, model, optimizer, reduction, variant), first)


def trained(
    tf: Any, ipu: Any, configure: Any, model: Model, optimizer: str, reduction: str, variant: tuple[Any, ...]
) -> Any:
    """The result of one variant; the replicas of several must have the same losses."""
    schedule, mode, memory = variant
    ops, replicas = ipu.pipelining_ops, 1 + (memory == "divided")
    shards = 1 << (model.stages - 1).bit_length()
    sizes = {"optimizations__minimum_remote_tensor_size": 0}
    configure(replicas * shards, allow_recompute=mode is not None, **sizes)
    losses, variables = on_ipu(
        tf,
        ipu,
        model,
        optimizer,
        replicas=replicas,
        alike=True,
        reduction_method=reduction,
        pipeline_schedule=getattr(ops.PipelineSchedule, schedule),
        recomputation_mode=ops.RecomputationMode.Auto if mode is None else getattr(ops.RecomputationMode, mode),
        **MEMORY[memory],
    )
    if replicas > 1:
        np.testing.assert_array_equal(losses[:, 0], losses[:, 1])
        losses = losses[:, 0]
    return losses, variables


@pytest.mark.parametrize(
    ("optimizer", "reduction", "schedule"),
    parameters(
        list(product(OPTIMIZERS, REDUCTIONS, ("Grouped", "Sequential"))),
        [("adam", "RUNNING_MEAN", "Grouped"), ("momentum", "SUM", "Sequential")],
    ),
)
def test_a_variable_of_two_stages_equals_that_of_plain_tensorflow(
    tf: Any, ipu: Any, configure: Any, optimizer: str, reduction: str, schedule: str
) -> None:
    model = Model(3, shares=True)
    configure(2)
    actual = on_ipu(
        tf,
        ipu,
        model,
        optimizer,
        reduction_method=reduction,
        device_mapping=[0, 1, 0],
        pipeline_schedule=getattr(ipu.pipelining_ops.PipelineSchedule, schedule),
    )
    assert_close(actual, on_cpu(tf, model, optimizer, reduction), 1e-5)


@pytest.mark.parametrize(("optimizer", "reduction"), [("momentum", "SUM"), ("adam", "MEAN")])
def test_a_loop_over_shards_equals_a_pipeline(
    tf: Any, ipu: Any, configure: Any, optimizer: str, reduction: str
) -> None:
    model = Model(2)
    configure(2)
    looped = in_a_loop(tf, ipu, model, optimizer, reduction)
    assert_close(looped, on_ipu(tf, ipu, model, optimizer, reduction_method=reduction), 1e-6)
    assert_close(looped, on_cpu(tf, model, optimizer, reduction), 1e-6)
