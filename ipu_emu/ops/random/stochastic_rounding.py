"""Stochastic rounding: FLOAT values rounded at random to one of the two nearest FLOAT16 values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, OutputTypes, always, call_chain, per_element
from ipu_emu.ops.core.kernel_helpers import flat
from ipu_emu.ops.random.counter_rng import draw, stream_id_of, stream_of, uniform


@jit
def round_stochastically(x: NDArray[Any], key: NDArray[Any], stream_id: int, out: NDArray[Any]) -> None:
    """Round ``x`` (float32 [n]) to one of the two nearest halves (``out``, as uint16), the nearer more likely.

    A half has 13 fewer mantissa bits: random bits are added to these, then they are truncated. Below 2^-14, halves
    are multiples of 2^-24. NaN stays NaN.
    """
    stream, bits = stream_of(key, stream_id), x.view(np.uint32)
    for i in range(x.size):
        size = np.int64(bits[i]) & 0x7FFFFFFF
        if size > 0x7F800000:
            half = np.int64(0x7E00)
        elif size >= 0x38800000:
            random = np.int64(draw(stream, i) >> np.uint64(51))
            half = min(((size + random) >> 13) - (112 << 10), np.int64(0x7C00))
        else:
            scaled = abs(x[i]) * np.float32(16777216)
            half = np.int64(scaled)
            if uniform(stream, i) < scaled - np.float32(half):
                half += 1
        out[i] = np.uint16(half | ((np.int64(bits[i]) >> 16) & 0x8000))


def _rounded(bound: BoundOp, x: NDArray[Any], out: NDArray[Any]) -> Call:
    """Round ``x`` into ``out``; the last input is the key."""
    key = bound.input(len(bound.inputs) - 1)
    return partial(round_stochastically, x, key, stream_id_of(bound.node.op), out.view(np.uint16))


def _round(bound: BoundOp) -> Call:
    return _rounded(bound, *flat(bound.input(len(bound.inputs) - 2), bound.outputs[0]))


def _add_rounded(bound: BoundOp) -> Call:
    total, g, out = flat(bound.input(0), bound.input(1), bound.outputs[0])
    return call_chain(
        partial(np.add, total, g, bound.scratch[0], dtype=np.float32),
        _rounded(bound, bound.scratch[0], out),
    )


def _mean_rounded(bound: BoundOp) -> Call:
    total, g, out = flat(bound.input(0), bound.input(1), bound.outputs[0])
    scaled, taken = bound.scratch
    return call_chain(
        partial(np.multiply, total, bound.input(2), scaled, dtype=np.float32),
        partial(np.multiply, g, bound.input(3), taken, dtype=np.float32),
        partial(np.add, scaled, taken, scaled),
        _rounded(bound, scaled, out),
    )


def _half(node: Node) -> OutputTypes:
    return [(FLOAT16, node.input(0).shape)]


def _values(count: int) -> Callable[[Node], list[int]]:
    """A workspace of ``count`` FLOAT values for each element of the second input."""
    return lambda node: [node.input(1).nelms] * count


_HALVES: dict[str, Any] = {"elementwise": True, "takes_half": always}
_IN_PLACE = _HALVES | {"updates": (0,)}

OPS = [
    # (x, key), and in place (target, x, key)
    OpDef("RoundStochastically", (2, 2), _half, _round, per_element(8), **_HALVES),
    OpDef("RoundStochasticallyInto", (3, 3), _half, _round, per_element(8), **_IN_PLACE),
    # (total, g, key), and (total, g, keep, take, key): AddInto and MeanInto of halves
    OpDef("AddRounded", (3, 3), _half, _add_rounded, per_element(9), workspace=_values(1), **_IN_PLACE),
    OpDef("MeanRounded", (5, 5), _half, _mean_rounded, per_element(11), workspace=_values(2), **_IN_PLACE),
]
