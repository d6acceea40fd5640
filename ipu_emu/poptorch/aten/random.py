"""Random numbers, drawn on the device: the distributions are PyTorch's, the numbers are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ipu_emu.graph.dtype import FLOAT, INT32
from ipu_emu.ops import Value
from ipu_emu.poptorch.aten.call import Call, Rule


def _uniform(call: Call, shape: Sequence[int], low: float, high: float) -> Value:
    return call.writer.random("RandomUniforms", shape, FLOAT.onnx, (low, high))


def _normal(call: Call, shape: Sequence[int], mean: float, deviation: float) -> Value:
    return call.writer.random("RandomNormals", shape, FLOAT.onnx, (mean, deviation))


def _rand(call: Call) -> Value:
    return _uniform(call, call.shape, 0, 1).cast(call.dtype)


def _randn(call: Call) -> Value:
    return _normal(call, call.shape, 0, 1).cast(call.dtype)


def _randint(call: Call) -> Value:
    low, high = float(call.get("low", 0)), float(call["high"])
    numbers = _uniform(call, call.shape, low, high).op("Floor").op("Min", call.constant(high - 1, np.float32))
    return numbers.cast(call.dtype)


def _like(call: Call) -> Any:
    return call.type_of(call.first)


def _uniform_in(call: Call) -> Value:
    low, high = float(call.get("from", 0)), float(call.get("to", 1))
    return _uniform(call, call.first.shape, low, high).cast(_like(call))


def _random_in(call: Call) -> Value:
    low = float(call.get("from", 0) or 0)
    high = float(call.get("to", 1 << 24) or 1 << 24)
    return _uniform(call, call.first.shape, low, high).op("Floor").cast(_like(call))


def _normal_in(call: Call) -> Value:
    numbers = _normal(call, call.first.shape, float(call.get("mean", 0)), float(call.get("std", 1)))
    return numbers.cast(_like(call))


def _normal_of(call: Call) -> Value:
    """``torch.normal`` with tensors for mean, deviation or both."""
    standard = _normal(call, call.shape, 0, 1)
    mean, deviation = (
        call.as_type(call.get(name, default), FLOAT) for name, default in (("mean", 0.0), ("std", 1.0))
    )
    return (standard * deviation + mean).cast(call.dtype)


def _exponential(call: Call) -> Value:
    numbers = _uniform(call, call.first.shape, 0, 1)
    return (-(1.0 - numbers).op("Log").scaled(1 / float(call.get("lambd", 1)))).cast(_like(call))


def _bernoulli(call: Call) -> Value:
    p = call.get("p")
    if p is None:
        p = call.first  # the probabilities themselves
    shape = tuple(call.first.shape)
    below = _uniform(call, shape, 0, 1).op("Less", call.as_type(p, FLOAT))
    return below.cast(_like(call))


def _native_dropout(call: Call) -> list[Any]:
    x, p = call.x, float(call["p"])
    if call.get("train", True) is False or p == 0:
        return [x, None]
    return [dropped(call, x, p), None]


def dropped(call: Call, x: Value, p: float) -> Value:
    """Return ``x`` with a fraction ``p`` of its elements set to 0 and the others scaled up."""
    if p >= 1:
        return x * x.like(0)
    return call.writer.emit_in("", "Dropout", [x], {"ratio": p, "training_mode": 1})[0]


def _dropout(call: Call) -> Value:
    """``torch.nn.functional.dropout``, also that of whole channels."""
    x, p = call.value("input"), float(call.get("p", 0.5))
    if not call.get("training", True) or p == 0:
        return x
    if not call.get("channels", False):
        return dropped(call, x, p)
    rank = x.tensor.rank
    lead = 1 if call["unbatched"] else 2
    shape = (*x.tensor.shape[:lead], *[1] * (rank - lead))
    mask = _uniform(call, shape, 0, 1).op("GreaterOrEqual", call.constant(p, np.float32)).cast(x.tensor.dtype)
    return x * mask.scaled(1 / (1 - p)) if p < 1 else x * x.like(0)


def _randperm(call: Call) -> Value:
    count = int(call["n"])
    numbers = _uniform(call, (count,), 0, 1)
    return numbers.ops(2, "Sort", axis=0, descending=0, stable=1)[1].cast(INT32)


RULES: dict[str, Rule] = {
    "bernoulli": _bernoulli,
    "exponential": _exponential,
    "fused_dropout": _dropout,
    "native_dropout": _native_dropout,
    "normal": _normal_of,
    "normal_in": _normal_in,
    "rand": _rand,
    "rand_like": _rand,
    "randint": _randint,
    "randint_like": _randint,
    "randn": _randn,
    "randn_like": _randn,
    "random": _random_in,
    "randperm": _randperm,
    "uniform": _uniform_in,
}

#: Ops that are recorded although they have no inputs from the device.
RANDOM = frozenset(RULES) - {"fused_dropout"}
