"""Shared batch normalisation: replicas of a group normalise by the statistics of all their batches.

    forward    BatchNormMoments  ->  mean over the group  ->  BatchNormShared        y
    backward   BatchNormSlopes   ->  mean over the group  ->  BatchNormSharedGrad    dx

There is one collective in each direction, with two FLOAT numbers for each channel: forward the mean of x and of x^2,
backward the mean of g and of g (x - mean) / deviation. As in PopLibs the variance is the mean of x^2 less the square
of the mean, so few of its digits are right where the mean is some hundred times the deviation.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops.communication.collective_ops import GROUP, MEAN, MEAN_OPERATOR, OPERATOR
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, always, flops
from ipu_emu.ops.core.kernel_helpers import channel_rows, epsilon_of, in_float32, storage
from ipu_emu.ops.core.row_kernels import norm_slopes, row_moments, shared_norm, shared_norm_grad
from ipu_emu.ops.core.shape_rules import like_second

#: The attribute with the number of replicas that share statistics.
GROUP_SIZE = "__batch_norm_replica_group_size"
MOMENTS, SHARED, SLOPES, SHARED_GRAD = "BatchNormMoments", "BatchNormShared", "BatchNormSlopes", "BatchNormSharedGrad"
_CONSECUTIVE = 1  # as PopART numbers it


def mean_of_group(replicas: int) -> dict[str, Any]:
    """The attributes of the mean over groups of consecutive replicas."""
    return {GROUP: [_CONSECUTIVE, replicas], OPERATOR: MEAN_OPERATOR}


def _shared_shape(node: Node) -> OutputTypes:
    x, channels = node.input(0), node.input(1).shape
    return [(x.dtype, x.shape), *[(FLOAT, channels)] * 3]


def _slopes_shape(node: Node) -> OutputTypes:
    scale = node.input(2)
    return [(FLOAT, (2 * scale.nelms,)), *[(scale.dtype, scale.shape)] * 2]


def _two(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The first and the second number of each channel."""
    first, second = values.reshape(2, -1)
    return first, second


def _moments(bound: BoundOp) -> Call:
    x, (mean, square) = bound.input(0), _two(bound.outputs[0])
    return row_moments(*channel_rows(x), x=storage(x), mean=mean, square=square)


def _shared(bound: BoundOp) -> Call:
    x, scale, bias, moments = (bound.input(index) for index in range(4))
    y, mean, variance, inverse = bound.outputs
    first, second = _two(moments)
    return shared_norm(
        *channel_rows(x), epsilon_of(bound.node), x=storage(x), scale=scale, bias=bias, first=first, second=second,
        y=storage(y), mean=mean, variance=variance, inverse=inverse,
    )  # fmt: skip


def _slopes(bound: BoundOp) -> Call:
    g, x, _, mean, inverse = (bound.input(index) for index in range(5))
    means, dscale, dbias = bound.outputs
    first, second = _two(means)
    return norm_slopes(
        *channel_rows(x), g=storage(g), x=storage(x), mean=mean, inverse=inverse, first=first, second=second,
        dscale=dscale, dbias=dbias,
    )  # fmt: skip


def _shared_grad(bound: BoundOp) -> Call:
    g, x, scale, mean, inverse, means = (bound.input(index) for index in range(6))
    dx, (first, second) = storage(bound.outputs[0]), _two(means)
    return shared_norm_grad(
        *channel_rows(x), g=storage(g), x=storage(x), scale=scale, mean=mean, inverse=inverse, first=first,
        second=second, dx=dx,
    )  # fmt: skip


def _adjoint(d: Adjoint) -> list[Value | None]:
    """The gradients; that of the moments is part of the gradient of x."""
    scale, (_, mean, _, inverse) = d.input(1), d.outputs
    slopes, dscale, dbias = d.g.ops(3, SLOPES, d.x, scale, mean, inverse)
    shared = slopes.op(MEAN, **mean_of_group(int(d.attribute(GROUP_SIZE, 1))))
    return [d.g.op(SHARED_GRAD, d.x, scale, mean, inverse, shared), dscale, dbias, None]


OPS = [
    # BatchNormMoments(x) -> means of x and of x^2
    OpDef(
        MOMENTS,
        (1, 1),
        lambda node: [(FLOAT, (2 * node.input(0).shape[1],))],
        in_float32(_moments),
        flops(lambda node: 3 * node.input(0).nelms),
        batch_innermost=(0,),
        takes_half=always,
    ),
    # BatchNormShared(x, scale, bias, moments of the group) -> y, mean, variance, inverse deviation
    OpDef(
        SHARED,
        (4, 4),
        _shared_shape,
        in_float32(_shared),
        flops(lambda node: 5 * node.input(0).nelms),
        _adjoint,
        batch_innermost=(0, 4),
        takes_half=always,
    ),
    # BatchNormSlopes(g, x, scale, mean, inverse) -> means of g and of g (x - mean) inverse, dscale, dbias
    OpDef(
        SLOPES,
        (5, 5),
        _slopes_shape,
        in_float32(_slopes),
        flops(lambda node: 4 * node.input(1).nelms),
        batch_innermost=(0, 1),
        takes_half=always,
    ),
    # BatchNormSharedGrad(g, x, scale, mean, inverse, means of the group) -> dx
    OpDef(
        SHARED_GRAD,
        (6, 6),
        like_second,
        in_float32(_shared_grad),
        flops(lambda node: 4 * node.input(1).nelms),
        batch_innermost=(0, 1, 6),
        takes_half=always,
    ),
]
