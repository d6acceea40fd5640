"""PopART losses: L1, negative log likelihood, and the identity loss."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Tensor
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.codegen.functions.compiled_functions import log
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, call_chain, listed, per_element
from ipu_emu.ops.core.axis_sums import axis_sum
from ipu_emu.ops.core.kernel_helpers import scalar, view
from ipu_emu.ops.core.shape_rules import like_second, reduction_of, same, scalar_or_same

#: The smallest probability, to which smaller ones are raised: (forward, backward), for FLOAT and for FLOAT16.
_SMALLEST = {False: (1e-7, 1e-10), True: (6.104e-5, 6.104e-5)}

#: Types of labels; 64-bit labels are 32-bit on the device.
_LABELS = ("INT32", "UINT32", "INT64", "UINT64")

#: ``ignore`` of the kernels when every label counts: no label has this value.
_NO_LABEL = -(2**62)


def _mean_factor(node: Node, count: int) -> float:
    return 1 / max(count, 1) if node.attribute("reduction", "Mean") == "Mean" else 1.0


# L1


def _l1_shape(node: Node) -> OutputTypes:
    if node.input(0).rank == 0:
        raise EmulatorError("L1Op not valid for rank-0 tensor (scalar)")
    return scalar_or_same(node)


def _l1_factor(node: Node) -> np.float32:
    return scalar(node.attribute("lambda", 1.0) * _mean_factor(node, node.input(0).nelms))


def _l1(bound: BoundOp) -> Call:
    x, y, factor = bound.input(0), bound.outputs[0], _l1_factor(bound.node)
    if bound.node.attribute("reduction", "Mean") == "NoReduction":
        return call_chain(partial(np.absolute, x, y), partial(np.multiply, y, factor, y))
    sizes = view(bound.scratch[0], x.shape)
    return call_chain(
        partial(np.absolute, x, sizes),
        axis_sum(sizes, y),
        partial(np.multiply, y, factor, y),
    )


def _l1_grad(bound: BoundOp) -> Call:
    x, g, out = bound.input(0), bound.input(1), bound.outputs[0]
    return call_chain(
        partial(np.sign, x, out),
        partial(np.multiply, out, g, out),
        partial(np.multiply, out, _l1_factor(bound.node), out),
    )


# Identity


def _identity_loss(bound: BoundOp) -> Call:
    x, y, reduction = bound.input(0), bound.outputs[0], bound.node.attribute("reduction", "Mean")
    if reduction == "NoReduction":
        return partial(np.copyto, y, x)
    factor = scalar(_mean_factor(bound.node, x.size))
    return call_chain(axis_sum(x, y), partial(np.multiply, y, factor, y))


def _identity_loss_grad(d: Adjoint) -> Value:
    return d.g.scaled(_mean_factor(d.node, d.x.tensor.nelms)).spread_to(d.shape)


# Negative log likelihood


def _nll_shape(node: Node) -> OutputTypes:
    _check_labels(node, node.input(0), node.input(1))
    per_label = reduction_of(node) == "NoReduction"
    return [(node.input(0).dtype, node.input(1).shape if per_label else ())]


def _check_labels(node: Node, probabilities: Tensor, labels: Tensor) -> None:
    if labels.dtype.name not in _LABELS:
        raise EmulatorError(
            "Expected the label tensor NllOp to be an integer data type (fixed point), not the case for input "
            f"with info: {labels.dtype} {list(labels.shape)}. This error for Op {node.op.label}. "
        )
    if labels.shape != probabilities.shape[:-1]:
        raise EmulatorError(
            f"The label tensor ({listed(labels.shape)}) must have shape {listed(probabilities.shape[:-1])} to match "
            f"all but the final dimension of the probabilities tensor ({listed(probabilities.shape)}) in Op "
            f"{node.op.label}. "
        )


@jit
def count_labels(labels: NDArray[Any], ignore: int) -> int:
    """How many labels are not ``ignore``, at least 1."""
    count = 0
    for i in range(labels.size):
        if labels[i] != ignore:
            count += 1
    return count if count else 1


@jit
def nll(
    p: NDArray[Any],
    labels: NDArray[Any],
    losses: NDArray[Any],
    smallest: float,
    ignore: int,
    is_log: bool,
    mean: bool,
) -> None:
    """Loss of each row of ``p`` [rows, classes], divided by the number of labels for a mean.

    A label that is not a class has probability 0. NaN probabilities give NaN losses.
    """
    count = np.float32(count_labels(labels, ignore) if mean else 1)
    for i in range(labels.size):
        label = labels[i]
        picked = p[i, label] if 0 <= label < p.shape[1] else np.float32(0)
        if label == ignore:
            losses[i] = 0
        elif is_log:
            losses[i] = -picked / count
        else:
            losses[i] = -log(np.float32(smallest) if picked < smallest else picked) / count


@jit
def nll_grad(
    g: NDArray[Any],
    p: NDArray[Any],
    labels: NDArray[Any],
    out: NDArray[Any],
    smallest: float,
    ignore: int,
    is_log: bool,
    mean: bool,
) -> None:
    """Gradient with respect to ``p``; ``g`` has one element per row, or a single one."""
    count = np.float32(count_labels(labels, ignore) if mean else 1)
    out[:] = 0
    for i in range(labels.size):
        label = labels[i]
        if label != ignore and 0 <= label < p.shape[1]:
            picked = np.float32(smallest) if p[i, label] < smallest else p[i, label]
            slope = np.float32(1) if is_log else np.float32(1) / picked
            out[i, label] = -g[i % g.size] * slope / count


@jit
def softmax_nll_grad(
    g: NDArray[Any], p: NDArray[Any], labels: NDArray[Any], out: NDArray[Any], ignore: int, mean: bool
) -> None:
    """Gradient with respect to the input of a softmax with output ``p``: (p - onehot(labels)) times a factor."""
    count = np.float32(count_labels(labels, ignore) if mean else 1)
    for i in range(labels.size):
        label = labels[i]
        scale = np.float32(0) if label == ignore else g[i % g.size] / count
        for j in range(p.shape[1]):
            out[i, j] = p[i, j] * scale
        if 0 <= label < p.shape[1]:
            out[i, label] -= scale


@jit
def _mark_empty(labels: NDArray[Any], ignore: int, mean: NDArray[Any]) -> None:
    """mean = NaN if every label is ``ignore``: the mean of no elements, as in PyTorch."""
    for i in range(labels.size):
        if labels[i] != ignore:
            return
    mean[0] = np.nan


def _rows(array: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    return view(array, (labels.size, array.shape[-1]))


def _settings(node: Node) -> tuple[int, bool, bool]:
    """(label to ignore, whether inputs are log probabilities, whether the reduction is a mean)"""
    return (
        node.attribute("ignoreIndex", _NO_LABEL),
        bool(node.attribute("inputIsLogProbability", 0)),
        node.attribute("reduction", "Mean") == "Mean",
    )


def _nll(bound: BoundOp) -> Call:
    p, labels, y = bound.input(0), bound.input(1), bound.outputs[0]
    smallest = _SMALLEST[bound.node.input(0).dtype is FLOAT16][0]
    per_label = bound.node.attribute("reduction", "Mean") == "NoReduction"
    losses = view(y, (labels.size,)) if per_label else bound.scratch[0]
    rows = _rows(p, labels)
    step = partial(nll, rows, view(labels, (labels.size,)), losses, smallest, *_settings(bound.node))
    if per_label:
        return step
    steps: list[Call] = [step, axis_sum(losses, y)]
    if bound.node.attribute("emptyIsNaN", 0) and bound.node.attribute("reduction", "Mean") == "Mean":
        steps.append(partial(_mark_empty, view(labels, (labels.size,)), _settings(bound.node)[0], view(y, (1,))))
    return call_chain(*steps)


def _nll_grad(bound: BoundOp) -> Call:
    g, p, labels = bound.input(0), bound.input(1), view(bound.input(2), (bound.input(2).size,))
    smallest = _SMALLEST[bound.node.input(1).dtype is FLOAT16][1]
    arrays = view(g, (g.size,)), _rows(p, labels), labels, _rows(bound.outputs[0], labels)
    return partial(nll_grad, *arrays, smallest, *_settings(bound.node))


def _softmax_nll_grad(bound: BoundOp) -> Call:
    g, p, labels = bound.input(0), bound.input(1), view(bound.input(2), (bound.input(2).size,))
    ignore, _, mean = _settings(bound.node)
    return partial(
        softmax_nll_grad, view(g, (g.size,)), _rows(p, labels), labels, _rows(bound.outputs[0], labels), ignore, mean
    )


OPS = [
    OpDef(
        "L1",
        (1, 1),
        _l1_shape,
        _l1,
        per_element(2),
        lambda d: d.x.op("L1Grad", d.g, **d.node.op.attributes),
        lambda node: [node.input(0).nelms],
        domain=GRAPHCORE,
    ),
    # L1Grad(x, g)
    OpDef("L1Grad", (2, 2), same, _l1_grad, per_element(3)),
    OpDef(
        "IdentityLoss", (1, 1), scalar_or_same, _identity_loss, per_element(1), _identity_loss_grad, domain=GRAPHCORE
    ),
    OpDef(
        "Nll",
        (2, 2),
        _nll_shape,
        _nll,
        per_element(10),
        lambda d: [d.g.op("NllGrad", d.inputs[0], d.inputs[1], **d.node.op.attributes), None],
        lambda node: [node.input(1).nelms],
        domain=GRAPHCORE,
    ),
    # NllGrad(g, probabilities, labels), and its fusion with the gradient of the softmax before the loss.
    OpDef("NllGrad", (3, 3), like_second, _nll_grad, per_element(2)),
    OpDef("SoftmaxNllGrad", (3, 3), like_second, _softmax_nll_grad, per_element(2)),
]
