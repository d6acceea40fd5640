"""Scatter with a reduction: values and gradients compared with a loop over all elements, and the texts of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer, train

_Array = NDArray[Any]
REDUCTIONS = popart.ScatterReduction
COMBINE: dict[popart.ScatterReduction, Callable[[Any, Any], Any]] = {
    REDUCTIONS.Sum: lambda old, new: old + new,
    REDUCTIONS.Max: max,
    REDUCTIONS.Min: min,
    REDUCTIONS.Mul: lambda old, new: old * new,
    REDUCTIONS.NoReduction: lambda old, new: new,
}
#: shape of the data, indices, axis, axis size, broadcast, group size, shape of the initial values
CASES = {
    "vector": ((4, 3), [2, 0, 2, 1], 0, 5, 1, 1, (5, 3)),
    "vector along the last axis": ((2, 3), [1, 1, 0], -1, 4, 1, 1, (2, 4)),
    "vector with the rank of the data": ((3, 2), [[4], [0], [4]], 0, 5, 1, 1, (5, 2)),
    "element-wise": ((2, 3), [[0, 1, 1], [3, 3, 0]], 1, 4, 1, 1, (2, 4)),
    "initial values of another size": ((4,), [0, 3, 0, 6], 0, 4, 1, 1, (7,)),
    "a corner of the data": ((3, 4), [[0, 1], [1, 1]], 0, 3, 0, 1, (3, 4)),
    "a corner along the axis": ((2, 5), [[0, 2, 0], [1, 1, 2]], 1, 3, 0, 1, (2, 3)),
    "a vector without broadcast": ((4, 3), [2, 0, 2, 1], 0, 5, 0, 1, (5, 3)),
    "a vector per group": ((2, 3, 2), [[1, 0, 1], [2, 2, 0]], 1, 4, 1, 2, (2, 4, 2)),
    "groups element-wise": ((2, 2, 2), [[[0, 1], [1, 1]], [[2, 0], [2, 2]]], 1, 3, 1, 2, (2, 3, 2)),
    "no elements": ((0, 3), [], 0, 4, 1, 1, (4, 3)),
}


def expanded(shape: tuple[int, ...], indices: _Array, axis: int, broadcast: int, groups: int) -> _Array:
    """The index of each element of the corner that is scattered."""
    lead = 1 if groups > 1 else 0
    if indices.ndim == 1 + lead and indices.ndim < len(shape):
        indices = indices.reshape(
            *indices.shape[:lead], *(1,) * (axis - lead), indices.shape[-1], *(1,) * (len(shape) - axis - 1)
        )
    return np.broadcast_to(indices, shape) if broadcast else indices


def scattered(reduction: Any, data: _Array, wide: _Array, axis: int, initial: _Array | None, shape: Any) -> _Array:
    """A loop over the elements, one by one."""
    out = np.zeros(shape, data.dtype) if initial is None else initial.copy()
    written: set[tuple[int, ...]] = set()
    for place, index in np.ndenumerate(wide):
        target = (*place[:axis], int(index), *place[axis + 1 :])
        first = initial is None and target not in written
        out[target] = data[place] if first else COMBINE[reduction](out[target], data[place])
        written.add(target)
    if initial is None and reduction is REDUCTIONS.Mul:
        for target in np.ndindex(*shape):
            if target not in written:
                out[target] = 1
    return out


def build(case: str, reduction: Any, with_initial: bool) -> tuple[Any, str, list[str], list[_Array], _Array]:
    shape, indices, axis, size, broadcast, groups, full = CASES[case]
    rng = np.random.default_rng(7)
    data = rng.permutation(np.arange(1, np.prod(shape) + 1)).reshape(shape).astype(np.float32) / 4
    initial = rng.permutation(np.arange(1, np.prod(full) + 1)).reshape(full).astype(np.float32) / 4 + 1 / 8
    builder = popart.Builder()
    values = [data, initial] if with_initial else [data]
    ids = [builder.addInitializedInputTensor(value) for value in values]
    at = np.array(indices, np.int32)
    args = [ids[0], builder.aiOnnx.constant(at), *ids[1:]]
    op = builder.aiGraphcore.scatterreduce
    size = size if with_initial else full[axis]
    settings = [size, axis, reduction, broadcast]
    if groups > 1:
        op, settings = builder.aiGraphcore.groupedscatterreduce, [size, axis, reduction, groups, broadcast]
    output = op(args, *settings)
    wide = expanded(shape, at, axis % len(shape), broadcast, groups)
    return builder, output, ids, values, wide


@pytest.mark.parametrize("with_initial", [False, True], ids=["alone", "with initial values"])
@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda reduction: reduction.name)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str, reduction: Any, with_initial: bool) -> None:
    builder, output, ids, values, wide = build(case, reduction, with_initial)
    axis = CASES[case][2] % len(CASES[case][0])
    result = (*wide.shape[:axis], CASES[case][6][axis], *wide.shape[axis + 1 :])
    shape = CASES[case][6] if with_initial else result
    expected = scattered(reduction, values[0], wide, axis, values[1] if with_initial else None, shape)
    weight = np.arange(1, 1 + expected.size, dtype=np.float32).reshape(shape)
    scaled = builder.aiOnnx.mul([output, builder.aiOnnx.constant(weight)])
    loss = builder.aiGraphcore.identityloss([scaled], popart.ReductionType.Sum)
    gradients = [popart.reservedGradientPrefix() + id for id in ids]
    session = train(builder, popart.DataFlow(1, [output, *gradients]), loss, popart.ConstSGD(0.1))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_allclose(anchors[output], expected, rtol=1e-6)
    for gradient, slope in zip(gradients, slopes(reduction, values, wide, axis, expected, weight), strict=False):
        np.testing.assert_allclose(anchors[gradient], slope, rtol=1e-5)


def slopes(reduction: Any, values: list[_Array], wide: _Array, axis: int, out: _Array, g: _Array) -> list[_Array]:
    """The gradients of data and initial values."""
    data = values[0]
    of_data, of_initial = np.zeros_like(data), g.copy()
    for place, index in np.ndenumerate(wide):
        target = (*place[:axis], int(index), *place[axis + 1 :])
        if reduction in (REDUCTIONS.Max, REDUCTIONS.Min):
            of_data[place] = g[target] * (data[place] == out[target])
        elif reduction is REDUCTIONS.Mul:
            of_data[place] = g[target] * out[target] / data[place]
        else:
            of_data[place] = g[target]
        if reduction is REDUCTIONS.NoReduction:
            of_initial[target] = 0
    if len(values) > 1 and reduction in (REDUCTIONS.Max, REDUCTIONS.Min):
        of_initial = g * (values[1] == out)
    if len(values) > 1 and reduction is REDUCTIONS.Mul:
        of_initial = g * out / values[1]
    return [of_data, of_initial]


@pytest.mark.parametrize(("reduction", "theirs"), [("Sum", "sum"), ("Mul", "prod"), ("Max", "amax"), ("Min", "amin")])
def test_values_are_those_of_torch(reduction: str, theirs: Any) -> None:
    torch = pytest.importorskip("torch")
    builder, output, _, (data, initial), wide = build("a corner of the data", REDUCTIONS[reduction], True)
    actual = infer(builder, popart.DataFlow(1, [output]), {})[output]
    there = torch.tensor(initial).scatter_reduce(0, torch.tensor(wide).long(), torch.tensor(data), theirs)
    np.testing.assert_allclose(actual, there.numpy(), rtol=1e-6)


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda reduction: reduction.name)
def test_integers(reduction: Any) -> None:
    builder = popart.Builder()
    data = builder.aiOnnx.constant(np.array([5, -3, 7], np.int32))
    at = builder.aiOnnx.constant(np.array([1, 1, 3], np.uint32))
    output = builder.aiGraphcore.scatterreduce([data, at], 4, 0, reduction)
    combined = {
        REDUCTIONS.Sum: 2,
        REDUCTIONS.Max: 5,
        REDUCTIONS.Min: -3,
        REDUCTIONS.Mul: -15,
        REDUCTIONS.NoReduction: -3,
    }
    rest = 1 if reduction is REDUCTIONS.Mul else 0
    actual = infer(builder, popart.DataFlow(1, [output]), {})[output]
    np.testing.assert_array_equal(actual, [rest, combined[reduction], rest, 7])


@pytest.mark.parametrize(
    ("indices", "named", "text"),
    [
        ([0, 1], {"axis": 2}, r"ScatterReduceOp::setup axis = 2 is outside the acceptable range \[-2, 1\]"),
        ([0, 1], {"axis_size": 0}, "ScatterReduceOp axis_size = 0 is not valid: must be > 0."),
        ([0, 1], {"group_size": 0}, "ScatterReduceOp group_size = 0 is not valid: must be > 0."),
        (
            [0, 1],
            {"enable_index_broadcast": 2},
            "ScatterReduceOp enable_index_broadcast = 2 is not valid: must be either 0 or 1.",
        ),
        ([[[0]]], {}, "Invalid rank for indices input. Indices rank 3 must be <= data input rank 2."),
        (
            [0, 1, 0],
            {},
            r"Failed to expand 'indices' shape \[3\] to match 'src' shape \[2 3\] using reduction axis = 0.",
        ),
        ([[0, 1]], {}, "Partial broadcasting of indices is not currently supported."),
    ],
)
def test_mismatched_shapes_are_refused_in_the_session(indices: Any, named: dict[str, int], text: str) -> None:
    builder = popart.Builder()
    data = builder.aiOnnx.constant(np.ones((2, 3), np.float32))
    at = builder.aiOnnx.constant(np.array(indices, np.int32))
    op = builder.aiGraphcore.groupedscatterreduce
    output = op([data, at], **({"axis_size": 4, "axis": 0} | named))
    with pytest.raises(popart.popart_exception, match=f"^{text}"):
        infer(builder, popart.DataFlow(1, [output]), {})


def scatter_of_onnx(type: str, reduction: str) -> None:
    builder = popart.Builder(opsets={"ai.onnx": 11})
    data, updates = (builder.addInputTensor("FLOAT", [3, 1]) for _ in range(2))
    at = builder.aiOnnx.constant(np.array([[2], [0], [2]], np.int64))
    (output,) = builder.customOp(type, 18, "ai.onnx", [data, at, updates], {"reduction": reduction})
    infer(builder, popart.DataFlow(1, [output]), {id: np.ones((3, 1), np.float32) for id in (data, updates)})


@pytest.mark.parametrize("type", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_reductions_that_onnx_does_not_know_are_refused(type: str, reduction: str) -> None:
    with pytest.raises(popart.popart_exception, match=f"'{reduction}' is not one of none, add, mul, max, min"):
        scatter_of_onnx(type, reduction)
