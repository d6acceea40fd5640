"""Automatic differentiation: where contributions to a gradient are added, and which are not added."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.graph import StepPhase
from ipu_emu.program.instructions import IpuCopy, OpInstruction, leaves
from tests.ipu_emu.helpers.sessions import train


@pytest.mark.parametrize(("model", "ipus"), [("resnet8", 4), ("transformer", 2)])
def test_one_gradient_of_a_value_that_several_ops_of_the_next_ipu_read_is_copied_back(model: str, ipus: int) -> None:
    """Residual connections read a value twice; both contributions are added before they cross."""
    executable = CompileRequest(model, ipus=ipus).compiled_until("plan-memory").executable
    copies = [leaf.op for leaf in leaves(executable.program) if isinstance(leaf, IpuCopy)]
    copy_counts = Counter(op.phase for op in copies)
    assert copy_counts[StepPhase.BACKWARD] == copy_counts[StepPhase.FORWARD] == ipus - 1


#: Slices of a tensor [6, 4]: starts, ends, axes, steps of each; and whether no addition is needed.
SLICES = {
    "rows": ([([0], [2], [0], [1]), ([2], [6], [0], [1])], True),
    "columns in another order": ([([3], [4], [1], [1]), ([0], [1], [-1], [1]), ([1], [3], [1], [1])], True),
    "negative bounds": ([([-6], [-2], [0], [1]), ([-2], [100], [0], [1])], True),
    "one slice": ([([0], [2], [0], [1])], False),
    "twice": ([([0], [2], [0], [1]), ([2], [6], [0], [1])] * 2, False),
    "overlapping": ([([0], [4], [0], [1]), ([2], [6], [0], [1])], False),
    "gap": ([([0], [2], [0], [1]), ([3], [6], [0], [1])], False),
    "two axes": ([([0, 0], [2, 4], [0, 1], [1, 1]), ([2, 0], [6, 2], [0, 1], [1, 1])], False),
    "different axes": ([([0], [2], [0], [1]), ([0], [2], [1], [1])], False),
    "every other": ([([0], [6], [0], [2]), ([1], [6], [0], [2])], False),
    "backward": ([([1], [-100], [0], [-1]), ([5], [1], [0], [-1])], False),
}


@pytest.mark.parametrize("reads_whole", [False, True])
@pytest.mark.parametrize(("slices", "divides"), SLICES.values(), ids=SLICES)
def test_the_gradients_of_slices_that_divide_a_tensor_are_joined(slices, divides, reads_whole) -> None:
    builder, wanted = popart.Builder(opsets={"ai.onnx": 11}), np.zeros((6, 4), np.float32)
    o, value = builder.aiOnnx, np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    x = builder.addInitializedInputTensor(value)
    parts = []
    for factor, (starts, ends, axes, steps) in enumerate(slices, 1):
        place = [slice(None)] * 2
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            place[axis] = slice(start, None if end == -100 else end, step)
        wanted[tuple(place)] += 2 * factor * value[tuple(place)]
        piece = o.slice([x, *(o.constant(np.array(numbers, np.int64)) for numbers in (starts, ends, axes, steps))])
        weight = o.constant(np.array(factor, np.float32))
        parts.append(o.reducesum([o.mul([o.mul([piece, piece]), weight])], axes=[0, 1], keepdims=0))
    if reads_whole:
        wanted += 1
        parts.append(o.reducesum([x], axes=[0, 1], keepdims=0))
    loss = o.sum(parts)
    session = train(builder, popart.DataFlow(1, [f"Gradient___{x}"]), loss, popart.ConstSGD(0.5))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_allclose(anchors[f"Gradient___{x}"], wanted, rtol=1e-5)
    ops = [leaf.op.type for leaf in leaves(session.executable.program) if isinstance(leaf, OpInstruction)]
    assert ("SliceInto" not in ops) == divides


@pytest.mark.parametrize(
    ("indices", "axis", "joined"),
    [([0, 1, 2], 0, True), ([3, -4, 1, 2], 1, True), ([2, 0], 0, False), ([0, 1, 2, 1], 0, False)],
    ids=["rows", "columns", "a row is missing", "a row twice"],
)
def test_the_gradients_of_gathers_at_constant_indices_are_joined(indices: list[int], axis: int, joined: bool) -> None:
    builder, wanted = popart.Builder(opsets={"ai.onnx": 11}), np.zeros((3, 4), np.float32)
    o, value = builder.aiOnnx, np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    x = builder.addInitializedInputTensor(value)
    parts = []
    for factor, index in enumerate(indices, 1):
        wanted[(slice(None),) * axis + (index,)] += 2 * factor * np.take(value, index, axis)
        gathered = o.gather([x, o.constant(np.array(index, np.int32))], axis=axis)
        weight = o.constant(np.array(factor, np.float32))
        parts.append(o.reducesum([o.mul([o.mul([gathered, gathered]), weight])], axes=[0], keepdims=0))
    session = train(builder, popart.DataFlow(1, [f"Gradient___{x}"]), o.sum(parts), popart.ConstSGD(0.5))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_allclose(anchors[f"Gradient___{x}"], wanted, rtol=1e-5)
    ops = [leaf.op.type for leaf in leaves(session.executable.program) if isinstance(leaf, OpInstruction)]
    assert ("SliceInto" not in ops) == joined
