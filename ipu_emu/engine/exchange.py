"""Exchange: collectives of shards, in memory that all of them use in turn.

room of a replica, for a reduce-scatter      | whole gradient, padded | shard |
                   for an all-gather         | whole weight, padded   | shard |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine.replicas import Replicas
from ipu_emu.graph import Op
from ipu_emu.ops import Step
from ipu_emu.ops.arrays import chain
from ipu_emu.ops.collectives import SCATTER_GRADIENT, operator_of

__all__ = ["exchange"]

_Array = NDArray[Any]


def exchange(
    replicas: Replicas, op: Op, room: NDArray[np.uint8], inputs: Sequence[_Array], outputs: Sequence[_Array]
) -> Step:
    """The prepared call of a collective of shards; one input and one output for each local replica."""
    domain, size = tuple(op.attributes["domain"]), int(op.attributes["shard"])
    communicator, local, members = replicas.within(domain), len(inputs), domain[1]
    free = room.reshape(-1).view(inputs[0].dtype)
    whole = free[: local * members * size].reshape(local, members * size)
    shards = free[whole.size : whole.size + local * size].reshape(local, size)
    if op.type == SCATTER_GRADIENT:
        return chain(
            *(_padded(x, row) for x, row in zip(inputs, whole, strict=True)),
            partial(communicator.reduce_scatter, whole, operator_of(op), out=shards),
            *(partial(np.copyto, y, row) for y, row in zip(outputs, shards, strict=True)),
        )
    gathered = whole.reshape(local, members, size)
    return chain(
        *(partial(np.copyto, row, x) for x, row in zip(inputs, shards, strict=True)),
        partial(communicator.all_gather, shards, out=gathered),
        *(partial(np.copyto, y, row[: y.size].reshape(y.shape)) for y, row in zip(outputs, whole, strict=True)),
    )


def _padded(x: _Array, row: _Array) -> Step:
    """Copy ``x`` to the beginning of ``row``, and zeros behind it."""
    return chain(partial(np.copyto, row[: x.size].reshape(x.shape), x), partial(row[x.size :].fill, 0))
