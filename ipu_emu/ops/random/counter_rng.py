"""Counter-based random numbers: a pure function of a key, the op and the index of an element.

The key is a tensor that the engine sets before it runs a micro-batch: [seed, global replica, step, micro-batch of the
step]; in the update phase, where replicas must stay equal, the replica is not part of it. Once per call, a
kernel derives a stream from the key and the id of its op, and draws 64 bits for each element:

    stream = stream_of(key, salt_of(op));  bits = draw(stream, index)

So the numbers do not depend on the layout of replicas, on threads, or on which ops ran before.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import part
from ipu_emu.graph import Graph, Op, Role, Tensor, dtype_named

#: The key of a replica, and the one that all replicas share.
RNG_KEY, SHARED_RNG_KEY = "randomSeed___replica", "randomSeed___shared"
#: The attribute of an op that draws the same numbers as another op.
STREAM_ID = "stream_id"
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key_in(graph: Graph, *, shared: bool = False) -> str:
    """The id of the key of ``graph``, which is added if it is missing."""
    id = SHARED_RNG_KEY if shared else RNG_KEY
    if id not in graph.tensors:
        graph.add(Tensor(id, dtype_named("UINT64"), (4,), Role.SCALAR), np.zeros(4, np.uint64))
    return id


def has_key(graph: Graph) -> bool:
    """Whether ``graph`` has a key, that is, draws random numbers."""
    return RNG_KEY in graph.tensors or SHARED_RNG_KEY in graph.tensors


def stream_id_of(op: Op) -> int:
    """A number that is unique to ``op`` in its graph, or the one in its attribute."""
    return int(op.attributes.get(STREAM_ID, crc32(op.outputs[0].encode())))


@part
def _mixed(x: Any) -> Any:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of ``x``."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@part
def stream_of(key: NDArray[Any], stream_id: Any) -> Any:
    """The start of the numbers of one op in one micro-batch."""
    state = _mixed(np.uint64(stream_id) + _GOLDEN)
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
