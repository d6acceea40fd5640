"""CTC loss: connectionist temporal classification, the loss of label sequences of unknown alignment.

    log_probs [T, N, C]   targets [N, S]   input_lengths [N]   target_lengths [N]   ->   a loss for each of N

A path goes through the stations blank, l1, blank, l2, ..., blank (2 S + 1 of them): in each time step it stays, moves
on by one, or skips a blank between different labels. The loss is -log of the sum of the probabilities of all paths.
Source: Graves et al. 2006; PopART 3.4 for the arguments.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit, part
from ipu_emu.graph import dtype_named
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops.codegen.functions.compiled_functions import exp, log1p
from ipu_emu.ops.core import Adjoint, BoundOp, Call, Node, OpDef, OutputTypes, Value, flops
from ipu_emu.ops.core.kernel_helpers import with_contiguous_operands
from ipu_emu.ops.core.shape_rules import like_second, reduction_of


@part
def log_add_exp(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b))"""
    high, low = max(a, b), min(a, b)
    return high if low == -np.inf else high + log1p(exp(low - high))


@part
def _extended_label(labels: NDArray[Any], k: int, blank: int) -> int:
    return labels[k // 2] if k % 2 else blank


@part
def _may_skip(labels: NDArray[Any], k: int) -> bool:
    """Whether a path may skip the blank before station ``k``."""
    return k % 2 == 1 and k > 1 and labels[k // 2] != labels[k // 2 - 1]


@part
def _forward(p: NDArray[Any], labels: NDArray[Any], times: int, count: int, blank: int, alpha: NDArray[Any]) -> Any:
    """Set alpha[t, k] = log probability of paths at station k at time t; return that of all complete paths."""
    for t in range(times):
        for k in range(count):
            if t == 0:
                before = 0.0 if k < 2 else -np.inf
            else:
                before = alpha[t - 1, k]
                if k > 0:
                    before = log_add_exp(before, alpha[t - 1, k - 1])
                if _may_skip(labels, k):
                    before = log_add_exp(before, alpha[t - 1, k - 2])
            alpha[t, k] = before + p[t, _extended_label(labels, k, blank)]
    if times == 0:
        return 0.0 if count == 1 else -np.inf
    last = alpha[times - 1, count - 1]
    return log_add_exp(last, alpha[times - 1, count - 2]) if count > 1 else last


@jit
def ctc_loss(
    p: NDArray[Any],
    targets: NDArray[Any],
    times: NDArray[Any],
    sizes: NDArray[Any],
    losses: NDArray[Any],
    alpha: NDArray[Any],
    blank: int,
    zero_infinity: bool,
    mean: bool,
    total: bool,
) -> None:
    """Losses of all sequences, or their sum; with ``mean`` each is divided by its number of labels and by N."""
    accumulated = 0.0
    for n in range(targets.shape[0]):
        size = int(sizes[n])
        loss = -_forward(p[:, n], targets[n], int(times[n]), 2 * size + 1, blank, alpha)
        if zero_infinity and loss == np.inf:
            loss = 0.0
        if mean:
            loss /= max(size, 1) * targets.shape[0]
        accumulated += loss
        if not total:
            losses[n] = loss
    if total:
        losses[0] = accumulated


@jit
def ctc_grad(
    g: NDArray[Any],
    p: NDArray[Any],
    targets: NDArray[Any],
    times: NDArray[Any],
    sizes: NDArray[Any],
    dp: NDArray[Any],
    alpha: NDArray[Any],
    beta: NDArray[Any],
    blank: int,
    zero_infinity: bool,
    mean: bool,
) -> None:
    """dp[t, n, c] = -g times the probability that a path is at a station of label c at time t.

    beta[k] = log probability of the rest of the paths from station k on, at the current time.
    """
    dp[:] = 0
    for n in range(targets.shape[0]):
        size, last, labels = int(sizes[n]), int(times[n]), targets[n]
        count = 2 * size + 1
        likelihood = _forward(p[:, n], labels, last, count, blank, alpha)
        if zero_infinity and likelihood == -np.inf:
            continue
        scale = g[n % g.size] / (max(size, 1) * targets.shape[0]) if mean else g[n % g.size]
        for t in range(last - 1, -1, -1):
            for k in range(count):  # ascending, so that beta of the stations after k is still that of t + 1
                if t == last - 1:
                    after = 0.0 if k >= count - 2 else -np.inf
                else:
                    after = beta[k] + p[t + 1, n, _extended_label(labels, k, blank)]
                    if k + 1 < count:
                        after = log_add_exp(after, beta[k + 1] + p[t + 1, n, _extended_label(labels, k + 1, blank)])
                    if k + 2 < count and _may_skip(labels, k + 2):
                        after = log_add_exp(after, beta[k + 2] + p[t + 1, n, _extended_label(labels, k + 2, blank)])
                beta[k] = after
                dp[t, n, _extended_label(labels, k, blank)] -= scale * exp(alpha[t, k] + after - likelihood)


def _checked(node: Node, first: int = 0) -> None:
    p, targets, times, sizes = (node.input(first + index) for index in range(4))
    if p.rank != 3 or targets.rank != 2 or targets.shape[0] != p.shape[1]:
        raise node.fail(f"inputs must be log probabilities [T, N, C] and targets [N, S], found {p} and {targets}")
    if times.shape != p.shape[1:2] or sizes.shape != times.shape:
        raise node.fail(f"lengths {times} and {sizes} must have one number for each of {p.shape[1]} sequences")
    if not all(tensor.dtype.is_integer for tensor in (targets, times, sizes)):
        raise node.fail(f"{targets}, {times} and {sizes} must be integers; cast them")
    if not 0 <= node.attribute("blank", 0) < p.shape[2]:
        raise node.fail(f"blank {node.attribute('blank', 0)} is not one of {p.shape[2]} classes")


def _shape(node: Node) -> OutputTypes:
    _checked(node)
    p, kind = node.input(0), node.attribute("outDataType", "UNDEFINED")
    dtype = p.dtype if kind == "UNDEFINED" else dtype_named(kind)
    return [(dtype, p.shape[1:2] if reduction_of(node) == "NoReduction" else ())]


def _settings(node: Node) -> tuple[int, bool, bool]:
    """(blank, whether infinite losses count as 0, whether the reduction is a mean)"""
    return (
        int(node.attribute("blank", 0)),
        bool(node.attribute("zeroInfinity", 0)),
        node.attribute("reduction", "Mean") == "Mean",
    )


def _lattice_sizes(node: Node, first: int) -> tuple[int, int]:
    """The largest numbers of time steps and of stations."""
    return max(node.input(first).shape[0], 1), 2 * node.input(first + 1).shape[1] + 1


def _loss(bound: BoundOp) -> Call:
    node, total = bound.node, bound.node.attribute("reduction", "Mean") != "NoReduction"
    p, targets, times, sizes = (bound.input(index) for index in range(4))
    alpha = bound.scratch[0].reshape(_lattice_sizes(node, 0))
    return partial(ctc_loss, p, targets, times, sizes, bound.outputs[0].reshape(-1), alpha, *_settings(node), total)


def _rule(d: Adjoint) -> list[Value | None]:
    names = ("blank", "zeroInfinity", "reduction")
    attributes = {name: d.node.op.attributes[name] for name in names if name in d.node.op.attributes}
    return [d.g.op("CtcLossGrad", *d.inputs, **attributes), None, None, None]


def _grad(bound: BoundOp) -> Call:
    node, (alpha, beta) = bound.node, bound.scratch
    g, p, targets, times, sizes = (bound.input(index) for index in range(5))
    alpha = alpha.reshape(_lattice_sizes(node, 1))
    return partial(ctc_grad, g.reshape(-1), p, targets, times, sizes, bound.outputs[0], alpha, beta, *_settings(node))


def _room(node: Node) -> list[int]:
    times, stations = _lattice_sizes(node, 0)
    return [times * stations]


def _grad_room(node: Node) -> list[int]:
    times, stations = _lattice_sizes(node, 1)
    return [times * stations, stations]


def _work(first: int) -> Any:
    return flops(
        lambda node: 10 * node.input(first).shape[1] * _lattice_sizes(node, first)[0] * _lattice_sizes(node, first)[1]
    )


OPS = [
    OpDef("Ctc", (4, 4), _shape, with_contiguous_operands(_loss), _work(0), _rule, _room, domain=GRAPHCORE),
    # CtcLossGrad(g, log_probs, targets, input_lengths, target_lengths)
    OpDef("CtcLossGrad", (5, 5), like_second, with_contiguous_operands(_grad), _work(1), None, _grad_room),
]
