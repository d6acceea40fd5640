"""Losses that are single ATen ops."""

from __future__ import annotations

import math
from typing import Any

from ipu_emu.graph.dtype import INT32
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule


def _reduced(x: Value, reduction: int) -> Value:
    """The mean (1) or the sum (2) of all elements, or ``x`` itself (0)."""
    if not reduction or not x.tensor.rank:
        return x
    return x.op("ReduceMean" if reduction == 1 else "ReduceSum", axes=list(range(x.tensor.rank)), keepdims=0)


def _nll(call: Call) -> list[Any]:
    """Negative log likelihood; the classes are the second axis."""
    x, target = call.x, call.value("target").cast(INT32)
    rank = x.tensor.rank
    if rank > 2:
        x = x.op("Transpose", perm=[0, *range(2, rank), 1])
    reduction, ignored = int(call.get("reduction", 1)), int(call.get("ignore_index", -100))
    weight = call.optional("weight")
    if weight is None:
        kind = ("NoReduction", "Mean", "Sum")[reduction]
        attributes = {"reduction": kind, "inputIsLogProbability": 1, "ignoreIndex": ignored, "emptyIsNaN": 1}
        return [call.writer.emit("Nll", [x, target], attributes)[0], None]
    unused = target.op("Equal", target.like(ignored))
    classes = unused.op("Where", target.like(0), target)
    chosen = x.op("GatherElements", classes.shaped((*target.tensor.shape, 1)), axis=x.tensor.rank - 1)
    factor = unused.op("Where", x.like(0), weight.op("Gather", classes, axis=0))
    losses = unused.op("Where", x.like(0), -(chosen.shaped(target.tensor.shape) * factor))
    if reduction == 0:
        return [losses, None]
    total, weights = _reduced(losses, 2), _reduced(factor, 2)
    if reduction == 2:
        return [total, weights]
    none = weights.op("Equal", weights.like(0))  # the mean of nothing is NaN, and its gradient 0
    return [none.op("Where", x.like(math.nan), total / none.op("Where", x.like(1), weights)), weights]


def _mse(call: Call) -> Value:
    a, b = call.common("self", "target")
    difference = a - b
    return _reduced(difference * difference, int(call.get("reduction", 1)))


def _huber(call: Call) -> Value:
    """Smooth L1 (with beta) and Huber (with delta), which is beta times as large."""
    a, b = call.common("self", "target")
    huber = call.name == "huber_loss"
    limit = float(call.get("delta" if huber else "beta", 1))
    size = (a - b).op("Abs")
    if limit == 0:
        return _reduced(size, int(call.get("reduction", 1)))
    inside = size.op("Less", size.like(limit))
    small = inside.op("Where", size, size.like(0))
    losses = inside.op("Where", (small * small).scaled(0.5 / limit), size - 0.5 * limit)
    return _reduced(losses.scaled(limit) if huber else losses, int(call.get("reduction", 1)))


def _binary_cross_entropy(call: Call) -> Value:
    """Logarithms are at least -100, and the slope is PyTorch's, (p - target) / (p (1 - p)), finite at 0 and 1."""
    p, target = call.common("self", "target")
    fixed, low = p.op("Detach"), p.like(-100)
    losses = -(target * fixed.op("Log").op("Max", low) + (1.0 - target) * (1.0 - fixed).op("Log").op("Max", low))
    slope = (fixed - target) / (fixed * (1.0 - fixed)).op("Max", p.like(1e-12))
    losses = losses + (p - fixed) * slope.op("Detach")
    weight = call.optional("weight")
    return _reduced(losses if weight is None else losses * weight, int(call.get("reduction", 1)))


def _with_logits(call: Call) -> Value:
    x, target = call.common("self", "target")
    positive, softplus = call.optional("pos_weight"), (-x).op("Softplus")
    if positive is not None:
        softplus = softplus * (target * (positive - 1.0) + 1.0)
    losses = (1.0 - target) * x + softplus
    weight = call.optional("weight")
    return _reduced(losses if weight is None else losses * weight, int(call.get("reduction", 1)))


def _soft_margin(call: Call) -> Value:
    x, target = call.common("self", "target")
    return _reduced((-(x * target)).op("Exp").op("Log1p"), int(call.get("reduction", 1)))


def _poisson(call: Call) -> Value:
    x, target = call.common("input", "target")
    logs, epsilon = bool(call.get("log_input", True)), float(call.get("eps", 1e-8))
    losses = x.op("Exp") - target * x if logs else x - target * (x + epsilon).op("Log")
    if call.get("full", False):
        stirling = target * target.op("Log") - target + target.scaled(2 * math.pi).op("Log").scaled(0.5)
        losses = losses + target.op("LessOrEqual", target.like(1)).op("Where", target.like(0), stirling)
    return _reduced(losses, int(call.get("reduction", 1)))


def _ctc(call: Call) -> Any:
    """(log probabilities [T, N, C], targets [N, S], lengths) -> the loss of each sample"""
    logs, targets = call.value("log_probs"), call.value("targets").cast(INT32)
    lengths = [call["input_lengths"], call["target_lengths"]]
    values = [
        call.of(length).cast(INT32) if hasattr(length, "dim") else call.constant(list(length), "int32")
        for length in lengths
    ]
    if targets.tensor.rank != 2:
        raise call.refuse("targets must be [N, S], padded, and not joined")
    attributes = {
        "reduction": "NoReduction",
        "blank": int(call.get("blank", 0)),
        "zeroInfinity": int(bool(call.get("zero_infinity", False))),
    }
    outputs = call.writer.emit("Ctc", [logs, targets, *values], attributes)
    return [outputs[0], None]


RULES: dict[str, Rule] = {
    "_ctc_loss": _ctc,
    "binary_cross_entropy": _binary_cross_entropy,
    "binary_cross_entropy_with_logits": _with_logits,
    "huber_loss": _huber,
    "mse_loss": _mse,
    "nll_loss2d_forward": _nll,
    "nll_loss_forward": _nll,
    "poisson_nll_loss": _poisson,
    "smooth_l1_loss": _huber,
    "soft_margin_loss": _soft_margin,
}
