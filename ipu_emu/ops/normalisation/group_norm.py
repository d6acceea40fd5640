"""Group normalisation: groups of channels are normalised by the statistics of each sample.

The groups of a sample are rows of [N, C, ...]. A matrix with one group (layer normalisation) is the fast case: scale
and bias have a number per column, and one pass applies them. Other inputs are scaled in a separate pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Rewrite, Value, call_chain, per_element
from ipu_emu.ops.core.axis_sums import axis_sum
from ipu_emu.ops.core.kernel_helpers import epsilon_of, in_float32
from ipu_emu.ops.core.row_kernels import norm, norm_grad
from ipu_emu.ops.core.shape_rules import norm_gradients

#: The attribute of strided groups: channel c of C belongs to group c mod G instead of c div (C / G).
STRIDED = "__strided_channel_grouping"

_Array = NDArray[Any]


def _group_shape(node: Node) -> OutputTypes:
    x, groups = node.input(0), node.attribute("num_groups", 1)
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise node.fail(f"num_groups {groups} must divide the channels of {x}, which must be [N, C, ...]")
    for index in (1, 2):
        if node.input(index).shape != (x.shape[1],):
            raise node.fail(f"{node.input(index)} must have shape [{x.shape[1]}], one number for each channel of {x}")
    rows = (x.shape[0] * groups,)
    return [(x.dtype, x.shape), (FLOAT, rows), (FLOAT, rows)]


def _per_column(node: Node) -> bool:
    """Whether scale and bias have a number for each column."""
    x = node.outputs[0]
    return node.attribute("num_groups", 1) == 1 and x.nelms == x.shape[0] * x.shape[1]


def _rows(bound: BoundOp) -> tuple[int, int]:
    rows = bound.outputs[0].shape[0] * bound.node.attribute("num_groups", 1)
    return rows, bound.outputs[0].size // max(rows, 1)


def _in_rows(array: _Array) -> tuple[_Array, list[Call]]:
    """A C-contiguous form of ``array``, and the calls that copy it there."""
    if array.flags.c_contiguous:
        return array, []
    copy = np.empty(array.shape, array.dtype)
    return copy, [partial(np.copyto, copy, array)]


def _wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1, -1, *(1,) * (len(shape) - 2))


def _group(bound: BoundOp) -> Call:
    scale, bias, variance = bound.input(1), bound.input(2), bound.scratch[0]
    y, mean, inverse = bound.outputs
    rows, columns = _rows(bound)
    x, steps = _in_rows(bound.input(0))
    out = y if y.flags.c_contiguous else np.empty(y.shape, y.dtype)
    per, factors = "column", {"scale": scale, "bias": bias}
    if not _per_column(bound.node):
        per, factors = "row", {"scale": np.ones(rows, np.float32), "bias": np.zeros(rows, np.float32)}
    statistics = {"mean": mean, "variance": variance, "inverse": inverse}
    steps.append(norm(per, rows, columns, epsilon_of(bound.node), x=x, **factors, y=out, **statistics))
    if per == "row":
        steps.append(partial(np.multiply, out, scale.reshape(_wide(y.shape)), out))
        steps.append(partial(np.add, out, bias.reshape(_wide(y.shape)), out))
    if out is not y:
        steps.append(partial(np.copyto, y, out))
    return call_chain(*steps)


def _group_grad_rule(d: Adjoint) -> Sequence[Value | None]:
    groups = d.attribute("num_groups", 1)
    return d.g.ops(3, "GroupNormGrad", d.x, d.input(1), d.outputs[1], d.outputs[2], num_groups=groups)


def _group_grad(bound: BoundOp) -> Call:
    scale, mean, inverse = (bound.input(i) for i in (2, 3, 4))
    dx, dscale, dbias = bound.outputs
    (g, first), (x, second) = _in_rows(bound.input(0)), _in_rows(bound.input(1))
    out = dx if dx.flags.c_contiguous else np.empty(dx.shape, dx.dtype)
    rows, columns = _rows(bound)
    steps = [*first, *second]
    if _per_column(bound.node):
        sums = [a if a.dtype == np.float32 else s for a, s in zip((dscale, dbias), bound.scratch[:2], strict=True)]
        steps += [partial(total.fill, 0) for total in sums]
        results = {"dx": out, "dscale": sums[0], "dbias": sums[1]}
        steps.append(norm_grad("column", rows, columns, g=g, x=x, scale=scale, mean=mean, inverse=inverse, **results))
        steps += [
            partial(np.copyto, a, s, casting="same_kind")
            for a, s in zip((dscale, dbias), sums, strict=True)
            if a is not s
        ]
    else:
        scaled = bound.scratch[2].reshape(g.shape)
        axes = (0, *range(2, g.ndim))
        ones, spare = np.ones(rows, np.float32), np.zeros((2, rows), np.float32)
        normal, results = scaled.reshape(rows, columns), {"dx": out, "dscale": spare[0], "dbias": spare[1]}
        steps += [
            partial(np.subtract, x.reshape(rows, columns), mean[:, None], normal),
            partial(np.multiply, normal, inverse[:, None], normal),
            partial(np.multiply, scaled, g, scaled),
            axis_sum(scaled, dscale, axes),
            axis_sum(g, dbias, axes),
            partial(np.multiply, g, scale.reshape(_wide(g.shape)), scaled),
            norm_grad("row", rows, columns, g=scaled, x=x, scale=ones, mean=mean, inverse=inverse, **results),
        ]
    if out is not dx:
        steps.append(partial(np.copyto, dx, out))
    return call_chain(*steps)


def _group_grad_workspace(node: Node) -> list[int]:
    channels = node.outputs[1].nelms if node.outputs[1].dtype is FLOAT16 else 0
    return [channels, channels, 0 if _per_column(node) else node.outputs[0].nelms]


def _in_order(rewrite: Rewrite, node: Node) -> None:
    """Strided groups as consecutive ones: the channels change their order, and back."""
    if not node.op.attributes.get(STRIDED):
        return
    groups = int(node.op.attributes["num_groups"])
    channels = np.arange(rewrite.shape(node.op.inputs[0])[1])
    order = channels.reshape(-1, groups).T.reshape(-1)
    there, back = rewrite.constant(order), rewrite.constant(np.argsort(order))
    inputs = [rewrite.op("Gather", id, there, axis=axis) for id, axis in zip(node.op.inputs, (1, 0, 0), strict=True)]
    attributes = {name: value for name, value in node.op.attributes.items() if not name.startswith("__")}
    ids = (f"{node.op.outputs[0]}/in_order", *node.op.outputs[1:])
    annotated = {**rewrite.annotations, **attributes, STRIDED: 0}
    rewrite.ops.append(replace(node.op, inputs=tuple(inputs), outputs=ids, attributes=annotated))
    rewrite.op("Gather", ids[0], back, into=node.op.outputs[0], axis=1)


_cost = per_element(8)

OPS = [
    OpDef(
        "GroupNormalization",
        (3, 3),
        _group_shape,
        in_float32(_group),
        _cost,
        _group_grad_rule,
        workspace=lambda node: [node.outputs[1].nelms],
        domain=GRAPHCORE,
        takes_half=_per_column,
        expand=_in_order,
    ),
    # GroupNormGrad(g, x, scale, mean, inverse) -> dx, dscale, dbias
    OpDef(
        "GroupNormGrad",
        (5, 5),
        norm_gradients,
        in_float32(_group_grad),
        _cost,
        workspace=_group_grad_workspace,
        takes_half=_per_column,
    ),
]
