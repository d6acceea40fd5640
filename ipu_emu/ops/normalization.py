"""Normalisation: by the statistics of a batch for each channel, or of each sample for groups of channels.

    training    BatchNormalization  ->  BatchNormTrain, and RunningMean for the mean and the variance
    inference   BatchNormalization  ->  BatchNormInfer

Channels of a batch are rows in the order [C, H, W, N] in which they are stored; groups of a sample are rows of [N, C,
...]. With one group of a matrix (layer normalisation) scale and bias have a number per column, which is the quick
case; others are scaled in a pass of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph import Graph, Op
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.adjoint import Adjoint, Value
from ipu_emu.ops.arrays import chain, scalar, singles, storage
from ipu_emu.ops.cost import per_element
from ipu_emu.ops.node import Made, Node
from ipu_emu.ops.registry import Bound, OpDef, Step, always
from ipu_emu.ops.row_kernels import norm, norm_grad

__all__ = ["OPS"]

_Array = NDArray[Any]


def _epsilon(node: Node) -> float:
    return float(np.float32(node.attribute("epsilon", 1e-5)))


# Batch


def _batch_shape(node: Node) -> Made:
    x = node.input(0)
    if x.rank < 2:
        raise node.fail(f"data [N, C, ...] is needed, found {x}")
    for index in range(1, len(node.inputs)):
        if node.input(index).shape != (x.shape[1],):
            raise node.fail(f"{node.input(index)} must have shape [{x.shape[1]}], one number for each channel of {x}")
    made = [(x.dtype, x.shape)]
    if len(node.op.outputs) == 1:
        return made
    if len(node.op.outputs) == 3 and node.attribute("training_mode", 0):  # from opset 14 on
        return made + [(node.input(index).dtype, (x.shape[1],)) for index in (3, 4)]
    if len(node.op.outputs) not in (0, 5):
        raise node.fail(f"{len(node.op.outputs)} outputs were asked for; ask for 1 (inference) or 5 (training)")
    return made + [(node.input(index).dtype, (x.shape[1],)) for index in (3, 4, 3, 4)]


def _batch_expand(graph: Graph, op: Op) -> Sequence[Op]:
    """Training where there are running statistics to make, else inference."""
    if len(op.outputs) == 1 or all("/unused/" in id for id in op.outputs[1:]):
        kept = {name: value for name, value in op.attributes.items() if name == "epsilon" or name.startswith("__")}
        return [Op("BatchNormInfer", op.inputs, op.outputs[:1], kept, name=op.name, phase=op.phase)]
    placement = {name: value for name, value in op.attributes.items() if name.startswith("__")}
    x, scale, bias, mean, variance = op.inputs
    y, next_mean, next_variance = op.outputs[:3]
    saved_mean, saved_variance = op.outputs[3:] or (f"{y}/mean", f"{y}/variance")
    inverse = graph.unused(f"{y}/inverse")
    channels = graph.tensor(scale).shape
    graph.add(type(graph.tensor(scale))(inverse, FLOAT, channels))
    data = graph.tensor(x)
    count = data.nelms // max(data.shape[1], 1)
    unbiased = count / max(count - 1, 1) if op.domain == GRAPHCORE else 1.0
    momentum = op.attributes.get("momentum", 0.9)
    epsilon = {"epsilon": op.attributes.get("epsilon", 1e-5)}
    outputs = (y, saved_mean, saved_variance, inverse)
    return [
        Op("BatchNormTrain", (x, scale, bias), outputs, placement | epsilon, name=op.name, phase=op.phase),
        _running(mean, saved_mean, next_mean, placement | {"keep": momentum, "take": 1 - momentum}),
        _running(
            variance, saved_variance, next_variance, placement | {"keep": momentum, "take": (1 - momentum) * unbiased}
        ),
    ]


def _running(old: str, batch: str, new: str, attributes: dict[str, Any]) -> Op:
    return Op("RunningMean", (old, batch), (new,), attributes)


def _train_shape(node: Node) -> Made:
    x, scale = node.input(0), node.input(1)
    return [(x.dtype, x.shape), (scale.dtype, scale.shape), (scale.dtype, scale.shape), (FLOAT, scale.shape)]


def _channels(bound: Bound) -> tuple[int, int]:
    """Rows and columns of [C, H, W, N]."""
    x = bound.outputs[0]
    return x.shape[1], x.size // max(x.shape[1], 1)


def _batch_train(bound: Bound) -> Step:
    x, scale, bias = (bound.input(i) for i in range(3))
    y, mean, variance, inverse = bound.outputs
    rows, columns = _channels(bound)
    return norm(
        "row", storage(x), scale, bias, storage(y), mean, variance, inverse,
        epsilon=_epsilon(bound.node), rows=rows, columns=columns,
    )  # fmt: skip


def _train_grad(d: Adjoint) -> Sequence[Value | None]:
    return d.g.ops(3, "BatchNormGrad", d.x, d.input(1), d.outputs[1], d.outputs[3])


def _batch_grad_shape(node: Node) -> Made:
    x, scale = node.input(1), node.input(2)
    return [(x.dtype, x.shape), (scale.dtype, scale.shape), (scale.dtype, scale.shape)]


def _batch_grad(bound: Bound) -> Step:
    g, x, scale, mean, inverse = (bound.input(i) for i in range(5))
    dx, dscale, dbias = bound.outputs
    rows, columns = _channels(bound)
    return norm_grad(
        "row", storage(g), storage(x), scale, mean, inverse, storage(dx), dscale, dbias, rows=rows, columns=columns
    )


def _running_mean(bound: Bound) -> Step:
    old, batch, new, share = bound.input(0), bound.input(1), bound.outputs[0], bound.scratch[0]
    keep, take = (scalar(bound.node.attribute(name, 0.0)) for name in ("keep", "take"))
    share = share.reshape(batch.shape)
    return chain(
        partial(np.multiply, batch, take, share),
        partial(np.multiply, old, keep, new),
        partial(np.add, new, share, new),
    )


def _first(node: Node) -> Made:
    return [(node.input(0).dtype, node.input(0).shape)]


def _batch_infer(bound: Bound) -> Step:
    """y = x factor + shift, with one of each for a channel."""
    x, scale, bias, mean, variance = (bound.input(i) for i in range(5))
    y, (factor, shift) = bound.outputs[0], bound.scratch
    epsilon, shape = scalar(_epsilon(bound.node)), (1, -1, *(1,) * (x.ndim - 2))
    return chain(
        partial(np.add, variance, epsilon, factor),
        partial(np.sqrt, factor, factor),
        partial(np.divide, scale, factor, factor),
        partial(np.multiply, mean, factor, shift),
        partial(np.subtract, bias, shift, shift),
        partial(np.multiply, x, factor.reshape(shape), y),
        partial(np.add, y, shift.reshape(shape), y),
    )


def _infer_grad(d: Adjoint) -> list[Value | None]:
    shape = (1, d.shape[1], *(1,) * (len(d.shape) - 2))
    scale, bias, mean, variance = (d.input(i) for i in range(1, 5))
    deviation = (variance + _epsilon(d.node)).op("Sqrt").shaped(shape)
    shifted = (d.x - mean.shaped(shape)) / deviation
    return [
        d.g * (scale.shaped(shape) / deviation),
        (d.g * shifted).summed_to(shape).shaped(scale.tensor.shape),
        d.g.summed_to(shape).shaped(bias.tensor.shape),
    ]


# Groups


def _group_shape(node: Node) -> Made:
    x, groups = node.input(0), node.attribute("num_groups", 1)
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise node.fail(f"num_groups {groups} must divide the channels of {x}, which has to be [N, C, ...]")
    for index in (1, 2):
        if node.input(index).shape != (x.shape[1],):
            raise node.fail(f"{node.input(index)} must have shape [{x.shape[1]}], one number for each channel of {x}")
    rows = (x.shape[0] * groups,)
    return [(x.dtype, x.shape), (FLOAT, rows), (FLOAT, rows)]


def _per_column(node: Node) -> bool:
    """Say whether scale and bias have a number for each column."""
    x = node.outputs[0]
    return node.attribute("num_groups", 1) == 1 and x.nelms == x.shape[0] * x.shape[1]


def _rows(bound: Bound) -> tuple[int, int]:
    rows = bound.outputs[0].shape[0] * bound.node.attribute("num_groups", 1)
    return rows, bound.outputs[0].size // max(rows, 1)


def _in_rows(array: _Array) -> tuple[_Array, list[Step]]:
    """``array`` in the order of its axes, and the call that brings it there."""
    if array.flags.c_contiguous:
        return array, []
    copy = np.empty(array.shape, array.dtype)
    return copy, [partial(np.copyto, copy, array)]


def _wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1, -1, *(1,) * (len(shape) - 2))


def _group(bound: Bound) -> Step:
    scale, bias, variance = bound.input(1), bound.input(2), bound.scratch[0]
    y, mean, inverse = bound.outputs
    rows, columns = _rows(bound)
    x, steps = _in_rows(bound.input(0))
    out = y if y.flags.c_contiguous else np.empty(y.shape, y.dtype)
    given: dict[str, Any] = {"epsilon": _epsilon(bound.node), "rows": rows, "columns": columns}
    if _per_column(bound.node):
        steps.append(norm("column", x, scale, bias, out, mean, variance, inverse, **given))
    else:
        ones, zeros = np.ones(rows, np.float32), np.zeros(rows, np.float32)
        steps.append(norm("row", x, ones, zeros, out, mean, variance, inverse, **given))
        steps.append(partial(np.multiply, out, scale.reshape(_wide(y.shape)), out))
        steps.append(partial(np.add, out, bias.reshape(_wide(y.shape)), out))
    if out is not y:
        steps.append(partial(np.copyto, y, out))
    return chain(*steps)


def _group_workspace(node: Node) -> list[int]:
    return [node.outputs[1].nelms]


def _group_grad_rule(d: Adjoint) -> Sequence[Value | None]:
    groups = d.attribute("num_groups", 1)
    return d.g.ops(3, "GroupNormGrad", d.x, d.input(1), d.outputs[1], d.outputs[2], num_groups=groups)


def _group_grad(bound: Bound) -> Step:
    scale, mean, inverse = (bound.input(i) for i in (2, 3, 4))
    dx, dscale, dbias = bound.outputs
    (g, first), (x, second) = _in_rows(bound.input(0)), _in_rows(bound.input(1))
    out = dx if dx.flags.c_contiguous else np.empty(dx.shape, dx.dtype)
    rows, columns = _rows(bound)
    steps = [*first, *second]
    if _per_column(bound.node):
        sums = [a if a.dtype == np.float32 else s for a, s in zip((dscale, dbias), bound.scratch[:2], strict=True)]
        steps += [partial(total.fill, 0) for total in sums]
        steps.append(norm_grad("column", g, x, scale, mean, inverse, out, *sums, rows=rows, columns=columns))
        steps += [
            partial(np.copyto, a, s, casting="same_kind")
            for a, s in zip((dscale, dbias), sums, strict=True)
            if a is not s
        ]
    else:
        scaled = bound.scratch[2].reshape(g.shape)
        axes = (0, *range(2, g.ndim))
        ones, spare = np.ones(rows, np.float32), np.zeros((2, rows), np.float32)
        by_row = (rows, columns)
        normal = scaled.reshape(by_row)
        steps += [
            partial(np.subtract, x.reshape(by_row), mean[:, None], normal),
            partial(np.multiply, normal, inverse[:, None], normal),
            partial(np.multiply, scaled, g, scaled),
            partial(np.add.reduce, scaled, axes, None, dscale),
            partial(np.add.reduce, g, axes, None, dbias),
            partial(np.multiply, g, scale.reshape(_wide(g.shape)), scaled),
            norm_grad("row", scaled, x, ones, mean, inverse, out, spare[0], spare[1], rows=rows, columns=columns),
        ]
    if out is not dx:
        steps.append(partial(np.copyto, dx, out))
    return chain(*steps)


def _group_grad_workspace(node: Node) -> list[int]:
    channels = node.outputs[1].nelms if node.outputs[1].dtype is FLOAT16 else 0
    return [channels, channels, 0 if _per_column(node) else node.outputs[0].nelms]


_cost = per_element(8)

OPS = [
    OpDef("BatchNormalization", (5, 5), _batch_shape, _batch_infer, _cost, expand=_batch_expand),
    OpDef("BatchNormalization", (5, 5), _batch_shape, _batch_infer, _cost, expand=_batch_expand, domain=GRAPHCORE),
    OpDef(
        "BatchNormTrain",
        (3, 3),
        _train_shape,
        singles(_batch_train),
        _cost,
        _train_grad,
        spatial=(0, 3),
        halves=always,
    ),
    # BatchNormGrad(g, x, scale, mean, inverse) -> dx, dscale, dbias
    OpDef("BatchNormGrad", (5, 5), _batch_grad_shape, singles(_batch_grad), _cost, spatial=(0, 1, 5), halves=always),
    # RunningMean(old, batch): keep old + take batch, in its place
    OpDef(
        "RunningMean",
        (2, 2),
        _first,
        _running_mean,
        per_element(3),
        workspace=lambda node: [node.input(1).nelms],
        updates=(0,),
    ),
    OpDef(
        "BatchNormInfer",
        (5, 5),
        _first,
        _batch_infer,
        per_element(2),
        _infer_grad,
        workspace=lambda node: [node.input(1).nelms] * 2,
        elementwise=True,
    ),
    OpDef(
        "GroupNormalization",
        (3, 3),
        _group_shape,
        singles(_group),
        _cost,
        _group_grad_rule,
        workspace=_group_workspace,
        domain=GRAPHCORE,
        halves=_per_column,
    ),
    # GroupNormGrad(g, x, scale, mean, inverse) -> dx, dscale, dbias
    OpDef(
        "GroupNormGrad",
        (5, 5),
        _batch_grad_shape,
        singles(_group_grad),
        _cost,
        workspace=_group_grad_workspace,
        halves=_per_column,
    ),
]
