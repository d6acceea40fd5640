"""names: the functions of GCL under their own names, for those who know it; a communicator takes the graph's place.

    gcl.allReduceInPlaceCrossReplica(communicator, x, "add")         communicator.all_reduce(x, "add", out=x)

Names of GCL 1.x (``allReduce``) are those of 2.x across replicas (``allReduceCrossReplica``). Tensors, or lists of
them, carry the local replicas as their leading axis; the group is the communicator's. GCL reference, section 1.
"""

from __future__ import annotations

import numpy as np

from gcl.communicator import Communicator, Tensors
from gcl.errors import ArgumentError
from gcl.operators import Operator
from gcl.tiles import MIN_IO_TILES, TILES_PER_IPU, exchange_buses, per_ipu_tiles
from gcl.within_replica import all_gather_within_replica, all_reduce_within_replica, reduce_scatter_within_replica

__all__ = [
    "MIN_IO_TILES",
    "allGather",
    "allGatherCrossReplica",
    "allGatherToDestinationCrossReplica",
    "allGatherWithinReplica",
    "allReduce",
    "allReduceCrossReplica",
    "allReduceInPlace",
    "allReduceInPlaceCrossReplica",
    "allReduceToDestination",
    "allReduceToDestinationCrossReplica",
    "allReduceWithinReplica",
    "allToAll",
    "allToAllCrossReplica",
    "broadcastCrossReplica",
    "getMinIoTiles",
    "getNumXBsUsed",
    "perIPUTiles",
    "reduceScatter",
    "reduceScatterCrossReplica",
    "reduceScatterToDestinationCrossReplica",
    "reduceScatterWithinReplica",
]


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
    communicator: Communicator, x: np.ndarray, destination: np.ndarray, *, method: str | None = None
) -> np.ndarray:
    """Join the shards ``x`` into ``destination`` [local, ...], which drops what is too much: padding at the end."""
    gathered = communicator.all_gather(x, method=method).reshape(len(x), -1)
    wanted = destination.size // max(1, len(destination))
    if len(destination) != len(x) or destination.dtype != x.dtype or wanted > gathered.shape[1]:
        raise ArgumentError(
            f"a destination of {destination.dtype} {list(destination.shape)} was given for shards of {x.dtype} that "
            f"are {gathered.shape[1]} elements together; it must have {len(x)} rows of at most as many"
        )
    destination[...] = gathered[:, :wanted].reshape(destination.shape)
    return destination


def allToAllCrossReplica(communicator: Communicator, x: np.ndarray) -> np.ndarray:
    """Send slice j of ``x`` [local, group size, ...] to member j."""
    return communicator.all_to_all(x)


def broadcastCrossReplica(communicator: Communicator, x: Tensors, root: int = 0) -> Tensors:
    """Give every replica the tensor of the group member ``root``."""
    return communicator.broadcast(x, root)


def perIPUTiles(tiles: int, offset: int, count: int, sorted: bool = True, tilePairs: bool = True) -> list[int]:
    """``count`` of the ``tiles`` of an IPU, after the first ``offset``, for I/O or for what is left to compute."""
    return per_ipu_tiles(offset, count, ordered=sorted, pairs=tilePairs, tiles=tiles)


def getMinIoTiles(tiles: int = TILES_PER_IPU) -> int:
    """The fewest I/O tiles that collectives can run on."""
    return min(MIN_IO_TILES, tiles)


def getNumXBsUsed(ioTiles: list[int]) -> int:
    """How many exchange buses ``ioTiles`` use, of which two tiles share each."""
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
