"""Reference anchors: the expected value of every anchor of a small training, by loops over batches and replicas."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu import popart
from tests.ipu_emu.helpers.threaded_instances import Instance, session_on

__all__ = ["KINDS", "check_all", "returned", "seen_by_host"]

KINDS = ("Final", "Sum", "All", "EveryN")
_RATE = 0.25
_FIRST = np.array([1.0, -2.0, 0.5], np.float32)

_Micro = dict[tuple[int, int, int], NDArray[Any]]


def returned(kind: str, period: int) -> popart.AnchorReturnType:
    return popart.AnchorReturnType(kind, period) if kind == "EveryN" else popart.AnchorReturnType(kind)


def seen_by_host(values: _Micro, kind: str, period: int, bps: int, factor: int, replicas: range) -> NDArray[Any]:
    """An anchor of the replicas of one instance; ``values[b, a, r]`` is that of a micro-batch."""
    steps = [(b, a) for b in range(bps) for a in range(factor)]
    if kind == "All":
        prefix, chosen = (bps, factor), steps
    elif kind == "EveryN":
        prefix, chosen = (bps // period, factor), steps[period - 1 :: period]
    else:
        prefix, chosen = (), steps[-1:]
    if kind == "Sum":
        flat = [sum(values[b, a, r] for b, a in steps) for r in replicas]
    else:
        flat = [values[b, a, r] for b, a in chosen for r in replicas]
    shape = [size for size in (*prefix, len(replicas)) if size != 1]
    return np.array(flat).reshape(shape + list(np.shape(flat[0])))


def trained(x: NDArray[Any], w: NDArray[Any]) -> tuple[dict[str, _Micro], NDArray[Any]]:
    """(values of each tensor, new weight) where loss = sum(x w) and x is [bps, A, all replicas, 3]."""
    bps, factor, replicas, _ = x.shape
    values: dict[str, _Micro] = {"y": {}, "loss": {}, "gradient": {}, "w": {}, "accumulator": {}}
    for b in range(bps):
        after = w - _RATE * sum(x[b, a, r] for a in range(factor) for r in range(replicas))
        for a, r in product(range(factor), range(replicas)):
            at = (b, a, r)
            values["y"][at] = x[at] * w
            values["loss"][at] = (x[at] * w).sum()
            values["gradient"][at] = x[at]
            values["accumulator"][at] = sum(x[b, i, r] for i in range(a + 1))
            values["w"][at] = after if factor == 1 else w
        w = after
    return values, w


def check_all(instance: Instance, kinds: tuple[str, ...] = KINDS) -> int:
    """Compare every anchor of two steps, for each kind, accumulation and number of batches; return how many."""
    compared = 0
    for kind, bps, factor in product(kinds, (1, 2, 4), (1, 2)):
        for period in [n for n in (1, 2, 4) if bps % n == 0] if kind == "EveryN" else [1]:
            compared += _check(instance, kind, period, bps, factor)
    return compared


def _check(instance: Instance, kind: str, period: int, bps: int, factor: int) -> int:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    w = builder.addInitializedInputTensor(_FIRST)
    y = builder.aiOnnx.mul([x, w])
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    ids = {"y": y, "loss": loss, "gradient": popart.reservedGradientPrefix() + w, "w": w}
    if factor > 1:
        ids["accumulator"] = popart.reservedAccumPrefix() + w
    opts = instance.configure(popart.SessionOptions())
    opts.enableGradientAccumulation, opts.accumulationFactor = factor > 1, factor
    flow = popart.DataFlow(bps, dict.fromkeys(ids.values(), returned(kind, period)))
    arguments = (builder.getModelProto(), flow, loss, popart.ConstSGD(_RATE))
    session = session_on(instance, popart.TrainingSession, *arguments, userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    local = range(instance.offset, instance.offset + instance.local)
    weight, anchors = _FIRST, session.initAnchorArrays()
    for step in range(2):
        random = np.random.default_rng(step)
        data = random.integers(-4, 5, (bps, factor, instance.total, 3)).astype(np.float32)
        session.run(popart.PyStepIO({x: np.ascontiguousarray(data[:, :, local])}, anchors))
        values, weight = trained(data, weight)
        for name, id in ids.items():
            if (name, kind) == ("w", "Final"):  # a variable is read after the last update
                values["w"] = dict.fromkeys(values["w"], weight)
            want = seen_by_host(values[name], kind, period, bps, factor, local)
            np.testing.assert_array_equal(
                anchors[id], want.astype(np.float32), f"{name} {kind} {period} {bps} {factor}"
            )
            assert anchors[id].shape == want.shape
    return 2 * len(ids)
