"""Graphcore API: the functions of GCL under their own names; with a communicator in place of the graph.

    gcl.allReduceInPlaceCrossReplica(communicator, x, "add")         communicator.all_reduce(x, "add", out=x)

Names of GCL 1.x (``allReduce``) are aliases of those of 2.x across replicas (``allReduceCrossReplica``). Tensors, or
lists of them, carry the local replicas as their leading axis; the group is the communicator's. GCL reference,
section 1.
"""

from __future__ import annotations

import numpy as np

from gcl.communicator import Communicator
from gcl.core.argument_checks import check_whole
from gcl.core.operators import Operator
from gcl.core.tensor_checks import Tensors
from gcl.errors import ArgumentError
from gcl.fabric.tile_mapping import MIN_IO_TILES, TILES_PER_IPU, exchange_buses, per_ipu_tiles
from gcl.reduce.within_replica import (
    all_gather_within_replica,
    all_reduce_within_replica,
    reduce_scatter_within_replica,
)

__all__ = [
    "MIN_IO_TILES", "allGather", "allGatherCrossReplica", "allGatherToDestinationCrossReplica",
    "allGatherWithinReplica", "allReduce", "allReduceCrossReplica", "allReduceInPlace",
    "allReduceInPlaceCrossReplica", "allReduceToDestination", "allReduceToDestinationCrossReplica",
    "allReduceWithinReplica", "allToAll", "allToAllCrossReplica", "broadcastCrossReplica", "getMinIoTiles",
    "getNumXBsUsed", "perIPUTiles", "reduceScatter", "reduceScatterCrossReplica",
    "reduceScatterToDestinationCrossReplica", "reduceScatterWithinReplica",
]  # fmt: skip


def allReduceCrossReplica(
    communicator: Communicator, x: Tensors, op: str = Operator.ADD, *, method: str | None = None
) -> Tensors:
    """Combine ``x``; every replica gets the result, in a new tensor."""
    return communicator.all_reduce(x, op, method=method)


def allReduceInPlaceCrossReplica(
    communicator: Communicator, x: Tensors, op: str = Operator.ADD, *, method: str | None = None
) -> Tensors:
    """Combine ``x`` into itself."""
    return communicator.all_reduce(x, op, out=x, method=method)


def allReduceToDestinationCrossReplica(
    communicator: Communicator, x: Tensors, destination: Tensors, op: str = Operator.ADD, *, method: str | None = None
) -> Tensors:
    """Combine ``x`` into ``destination``, of its shape and dtype."""
    return communicator.all_reduce(x, op, out=destination, method=method)


def reduceScatterCrossReplica(
    communicator: Communicator, x: Tensors, op: str = Operator.ADD, *, method: str | None = None
) -> Tensors:
    """Combine ``x`` [local, n]; each replica gets its fragment."""
    return communicator.reduce_scatter(x, op, method=method)


def reduceScatterToDestinationCrossReplica(
    communicator: Communicator, x: Tensors, destination: Tensors, op: str = Operator.ADD, *, method: str | None = None
) -> Tensors:
    """Combine ``x`` [local, n]; each replica's fragment goes to ``destination``."""
    return communicator.reduce_scatter(x, op, out=destination, method=method)


def allGatherCrossReplica(communicator: Communicator, x: Tensors, *, method: str | None = None) -> Tensors:
    """Join the shards ``x`` of all replicas: [local, group size, ...]."""
    return communicator.all_gather(x, method=method)


def allGatherToDestinationCrossReplica(
    communicator: Communicator, x: Tensors, destination: Tensors, *, method: str | None = None
) -> Tensors:
    """Join the shards ``x`` into ``destination`` [local, ...], and drop the padding that does not fit."""
    gathered = communicator.all_gather(x, method=method)
    joined, targets = (gathered, destination) if isinstance(x, list | tuple) else ([gathered], [destination])
    if not isinstance(targets, list | tuple) or len(targets) != len(joined):
        raise ArgumentError(f"{len(joined)} tensors are gathered; give a list of the same number of destinations")
    fitting = [_without_padding(*pair) for pair in zip(joined, targets, strict=True)]
    for target, values in zip(targets, fitting, strict=True):
        target[...] = values
    return destination


def allToAllCrossReplica(communicator: Communicator, x: np.ndarray) -> np.ndarray:
    """Send slice j of ``x`` [local, group size, ...] to member j."""
    return communicator.all_to_all(x)


def broadcastCrossReplica(communicator: Communicator, x: Tensors, root: int = 0) -> Tensors:
    """Give every replica the tensor of the group member ``root``."""
    return communicator.broadcast(x, root)


def _without_padding(gathered: np.ndarray, destination: np.ndarray) -> np.ndarray:
    """The first elements of ``gathered`` [local, size, ...], in the shape of ``destination``."""
    if not isinstance(destination, np.ndarray):
        raise ArgumentError(
            f"the destination is of type {type(destination).__name__}; give a numpy array [local replicas, ...]"
        )
    if not destination.flags.writeable:
        raise ArgumentError("the destination is read-only; give a writable tensor")
    rows, count = len(gathered), gathered.size // len(gathered)
    fits = destination.ndim and len(destination) == rows and destination.size <= rows * count
    if not fits or destination.dtype != gathered.dtype:
        raise ArgumentError(
            f"the destination is {destination.dtype} {list(destination.shape)}, but the shards have {count} elements "
            f"of {gathered.dtype} in total; give a destination of {rows} rows with at most that many elements each"
        )
    return gathered.reshape(rows, -1)[:, : destination.size // rows].reshape(destination.shape)


def perIPUTiles(tiles: int, offset: int, count: int, sorted: bool = True, tilePairs: bool = True) -> list[int]:
    """``count`` of the ``tiles`` of an IPU, after the first ``offset``, for I/O, or the rest for compute."""
    return per_ipu_tiles(offset, count, ordered=sorted, pairs=tilePairs, tiles=tiles)


def getMinIoTiles(tiles: int = TILES_PER_IPU) -> int:
    """The fewest I/O tiles that collectives can run on."""
    check_whole(tiles, "tiles", 1)
    return min(MIN_IO_TILES, tiles)


def getNumXBsUsed(ioTiles: list[int]) -> int:
    """Number of exchange buses that ``ioTiles`` use; two tiles share one."""
    return exchange_buses(ioTiles)


allReduceWithinReplica = all_reduce_within_replica
reduceScatterWithinReplica = reduce_scatter_within_replica
allGatherWithinReplica = all_gather_within_replica

allReduce = allReduceCrossReplica
allReduceInPlace = allReduceInPlaceCrossReplica
allReduceToDestination = allReduceToDestinationCrossReplica
reduceScatter = reduceScatterCrossReplica
allGather = allGatherCrossReplica
allToAll = allToAllCrossReplica
