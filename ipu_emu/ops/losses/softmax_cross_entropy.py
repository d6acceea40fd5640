"""Softmax cross entropy: the losses of a softmax of logits, together with their gradients.

    SparseSoftmaxCrossEntropy(x, labels)    losses = log(sum(exp(x))) - x[label]       gradients = p - onehot(labels)
    SoftmaxCrossEntropy(x, t)               losses = sum(t (log(sum(exp(x))) - x))     gradients = p - t

with p = exp(x) / sum(exp(x)) over each row, computed from x - max(x). The gradients are those of each row's own loss.
A label that is not a class gives NaN.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, OutputTypes, call_chain, per_element
from ipu_emu.ops.core.array_functions import function
from ipu_emu.ops.core.kernel_helpers import with_contiguous_operands
from ipu_emu.ops.core.row_kernels import RowKernel

_EXPONENTIALS = "d = sub x m; e = exp_falling d; store y e; sum s e"


def _shape(node: Node) -> OutputTypes:
    x = node.input(0)
    return [(x.dtype, x.shape[:1]), (x.dtype, x.shape)]


@jit
def take_labels(
    x: NDArray[Any], labels: NDArray[Any], largest: NDArray[Any], losses: NDArray[Any], y: NDArray[Any]
) -> None:
    """Turn logarithms of sums into losses, and subtract 1 from the probability of each label."""
    for i in range(labels.size):
        label = labels[i]
        if 0 <= label < x.shape[1]:
            losses[i] -= x[i, label] - largest[i]
            y[i, label] -= 1
        else:
            losses[i] = np.nan
            y[i] = np.nan


@jit
def weigh_targets(losses: NDArray[Any], products: NDArray[Any], targets: NDArray[Any]) -> None:
    """Turn logarithms of sums into losses, by the sums of t (x - max(x)) and of t."""
    for i in range(losses.size):
        losses[i] = losses[i] * targets[i] - products[i]


def _sparse(bound: BoundOp) -> Call:
    x, labels, (losses, y), largest = bound.input(0), bound.input(1), bound.outputs, bound.scratch[0]
    kernel = RowKernel(*x.shape, x=("full", x), y=("full", y), loss=("row", losses), largest=("row", largest))
    kernel.add("largest m x", "put largest m")
    kernel.add(_EXPONENTIALS, "r = div 1 s; define r r; put loss s")
    kernel.add("p = mul y r; store y p")
    logs = function("log").bound(losses, out=losses)
    return call_chain(kernel.bound(), logs, partial(take_labels, x, labels, largest, losses, y))


def _dense(bound: BoundOp) -> Call:
    x, t, (losses, y), (products, targets) = bound.input(0), bound.input(1), bound.outputs, bound.scratch
    kernel = RowKernel(
        *x.shape, x=("full", x), t=("full", t), y=("full", y), loss=("row", losses), products=("row", products),
        targets=("row", targets),
    ).add("largest m x")  # fmt: skip
    kernel.add(
        f"{_EXPONENTIALS}; q = mul d t; sum a q; sum b t",
        "r = div 1 s; define r r; put loss s; put products a; put targets b",
    )
    kernel.add("p = mul y r; g = sub p t; store y g")
    logs = function("log").bound(losses, out=losses)
    return call_chain(kernel.bound(), logs, partial(weigh_targets, losses, products, targets))


def _one_per_row(node: Node, arrays: int) -> list[int]:
    return [node.input(0).shape[0]] * arrays


OPS = [
    OpDef(
        "SparseSoftmaxCrossEntropy",
        (2, 2),
        _shape,
        with_contiguous_operands(_sparse),
        per_element(14),
        workspace=partial(_one_per_row, arrays=1),
    ),
    OpDef(
        "SoftmaxCrossEntropy",
        (2, 2),
        _shape,
        with_contiguous_operands(_dense),
        per_element(16),
        workspace=partial(_one_per_row, arrays=2),
    ),
]
