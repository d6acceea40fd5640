"""Random numbers as ops see them: a pure function of a key, the op and the index of an element.

The key is a tensor that the engine sets before it runs a micro-batch: [seed, global replica, step, micro-batch of the
step]; in the update phase, where replicas must stay equal, the replica is not part of it. A kernel makes a stream
of the key and the number of its op once per call, and draws 64 bits for each element from it:

    stream = stream_of(key, salt_of(op));  bits = draw(stream, index)

So the numbers do not depend on how replicas are spread, on threads, or on what ran before.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit, part
from ipu_emu.graph import Graph, Op, Role, Tensor, dtype_named
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.core.cost import per_element
from ipu_emu.ops.core.kernel_helpers import call_chain, flat
from ipu_emu.ops.core.node import Node, OutputTypes
from ipu_emu.ops.core.op_definition import BoundOp, Call, OpDef

__all__ = [
    "OPS",
    "RNG_KEY",
    "SHARED_RNG_KEY",
    "STREAM_ID",
    "draw",
    "has_key",
    "key_in",
    "stream_id_of",
    "stream_of",
    "uniform",
]

#: The key of a replica, and the one that all replicas share.
RNG_KEY, SHARED_RNG_KEY = "randomSeed___replica", "randomSeed___shared"
#: The attribute of an op that draws the numbers of another one.
STREAM_ID = "salt"
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key_in(graph: Graph, *, shared: bool = False) -> str:
    """The id of the key of ``graph``, which is added where it is not there yet."""
    id = SHARED_RNG_KEY if shared else RNG_KEY
    if id not in graph.tensors:
        graph.add(Tensor(id, dtype_named("UINT64"), (4,), Role.SCALAR), np.zeros(4, np.uint64))
    return id


def has_key(graph: Graph) -> bool:
    """Say whether anything in ``graph`` is random."""
    return RNG_KEY in graph.tensors or SHARED_RNG_KEY in graph.tensors


def stream_id_of(op: Op) -> int:
    """A number that tells ``op`` from the others of its graph, or the one that it was given."""
    return int(op.attributes.get(STREAM_ID, crc32(op.outputs[0].encode())))


@part
def _mixed(x: Any) -> Any:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of ``x``."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@part
def stream_of(key: NDArray[Any], salt: Any) -> Any:
    """The start of the numbers of one op in one micro-batch."""
    state = _mixed(np.uint64(salt) + _GOLDEN)
    for i in range(key.size):
        state = _mixed(state ^ (key[i] + _GOLDEN))
    return state


@part
def draw(stream: Any, index: Any) -> Any:
    """64 random bits for the element ``index``."""
    return _mixed(stream + np.uint64(index) * _GOLDEN)


@part
def uniform(stream: Any, index: Any) -> Any:
    """A float32 from 0 (included) to 1 (excluded), of 24 bits."""
    return np.float32(draw(stream, index) >> np.uint64(40)) * np.float32(1 / 16777216)


@jit
def round_stochastically(x: NDArray[Any], key: NDArray[Any], salt: int, out: NDArray[Any]) -> None:
    """Round ``x`` (float32 [n]) to one of the two nearest halves (``out``, as uint16), the nearer the likelier.

    A half has 13 bits less: random ones are added to those before they are cut off. Below 2^-14 halves are whole
    multiples of 2^-24. NaN stays NaN.
    """
    stream, bits = stream_of(key, salt), x.view(np.uint32)
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


def _round(bound: BoundOp) -> Call:
    x, out = flat(bound.input(0), bound.outputs[0])
    return partial(round_stochastically, x, bound.input(1), stream_id_of(bound.node.op), out.view(np.uint16))


def _round_into(bound: BoundOp) -> Call:
    x, out = flat(bound.input(1), bound.outputs[0])
    return partial(round_stochastically, x, bound.input(2), stream_id_of(bound.node.op), out.view(np.uint16))


def _add_rounded(bound: BoundOp) -> Call:
    total, g, out = flat(bound.input(0), bound.input(1), bound.outputs[0])
    return call_chain(
        partial(np.add, total, g, bound.scratch[0], dtype=np.float32),
        partial(
            round_stochastically, bound.scratch[0], bound.input(2), stream_id_of(bound.node.op), out.view(np.uint16)
        ),
    )


def _mean_rounded(bound: BoundOp) -> Call:
    total, g, out = flat(bound.input(0), bound.input(1), bound.outputs[0])
    kept, taken = bound.scratch
    return call_chain(
        partial(np.multiply, total, bound.input(2), kept, dtype=np.float32),
        partial(np.multiply, g, bound.input(3), taken, dtype=np.float32),
        partial(np.add, kept, taken, kept),
        partial(round_stochastically, kept, bound.input(4), stream_id_of(bound.node.op), out.view(np.uint16)),
    )


def _half(node: Node) -> OutputTypes:
    return [(FLOAT16, node.input(0).shape)]


def _always(node: Node) -> bool:
    return True


OPS = [
    # (x, key), and (what is replaced, x, key)
    OpDef("RoundStochastically", (2, 2), _half, _round, per_element(8), elementwise=True, takes_half=_always),
    OpDef(
        "RoundStochasticallyInto",
        (3, 3),
        _half,
        _round_into,
        per_element(8),
        updates=(0,),
        elementwise=True,
        takes_half=_always,
    ),
    # (total, g, key), and (total, g, keep, take, key): AddInto and MeanInto of halves
    OpDef(
        "AddRounded",
        (3, 3),
        _half,
        _add_rounded,
        per_element(9),
        None,
        lambda node: [node.input(1).nelms],
        updates=(0,),
        elementwise=True,
        takes_half=_always,
    ),
    OpDef(
        "MeanRounded",
        (5, 5),
        _half,
        _mean_rounded,
        per_element(11),
        None,
        lambda node: [node.input(1).nelms] * 2,
        updates=(0,),
        elementwise=True,
        takes_half=_always,
    ),
]
