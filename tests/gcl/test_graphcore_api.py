"""GCL's own names: each calls the collective of its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gcl
from gcl.communicator import Communicator
from tests.gcl.helpers.threads import on_threads

X = np.float32([[1, 2, 3, 4, 5], [10, 20, 30, 40, 50]])
TOTAL = [[11, 22, 33, 44, 55]] * 2


def check(communicator: Communicator) -> None:
    rows = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
    x, total = X[rows].copy(), TOTAL[rows]
    shards = [[11, 22, 33], [44, 55, 0]][rows]
    assert gcl.allReduceCrossReplica(communicator, x).tolist() == total
    assert gcl.allReduceCrossReplica(communicator, x, "max", method="clockwise_ring").tolist() == [
        [10, 20, 30, 40, 50]
    ] * len(x)
    destination = np.zeros_like(x)
    assert gcl.allReduceToDestinationCrossReplica(communicator, x, destination) is destination
    assert destination.tolist() == total
    in_place = x.copy()
    assert gcl.allReduceInPlaceCrossReplica(communicator, in_place) is in_place
    assert in_place.tolist() == total
    shard = gcl.reduceScatterCrossReplica(communicator, x)
    assert shard.tolist() == shards
    mine = np.empty_like(shard)
    assert gcl.reduceScatterToDestinationCrossReplica(communicator, x, mine).tolist() == shards
    assert gcl.allGatherCrossReplica(communicator, shard).reshape(len(x), 6).tolist() == [[*TOTAL[0], 0]] * len(x)
    gathered = np.empty_like(x)
    assert gcl.allGatherToDestinationCrossReplica(communicator, shard, gathered).tolist() == total
    swapped = gcl.allToAllCrossReplica(communicator, np.ascontiguousarray(x[:, :4].reshape(-1, 2, 2)))
    assert swapped.reshape(-1, 4).tolist() == [[1, 2, 10, 20], [3, 4, 30, 40]][rows]
    assert gcl.broadcastCrossReplica(communicator, x, 1).tolist() == [X[1].tolist()] * len(x)
    first, second = gcl.allReduceCrossReplica(communicator, [x, x[:, :2].copy()])
    assert (first.tolist(), second.tolist()) == (total, [row[:2] for row in total])


@pytest.mark.parametrize("method", ["auto", "clockwise_ring"])
@pytest.mark.parametrize("counts", [(2,), (1, 1)], ids=str)
def test_across_replicas(counts: tuple[int, ...], method: str) -> None:
    on_threads(counts, check, method=method)


def test_a_destination_drops_padding_but_is_never_too_large() -> None:
    with gcl.connect(local_replicas=2) as communicator:
        shards = communicator.reduce_scatter(X)
        with pytest.raises(gcl.ArgumentError, match=r"6 elements of float32.*2 rows"):
            gcl.allGatherToDestinationCrossReplica(communicator, shards, np.empty((2, 7), np.float32))


def test_lists_are_gathered_into_lists_of_destinations() -> None:
    with gcl.connect(local_replicas=2, segment_bytes=1 << 24) as communicator:
        shards = communicator.reduce_scatter([X, X[:, :3].copy()])
        gathered, part = np.empty_like(X), np.empty((2, 3), np.float32)
        assert gcl.allGatherToDestinationCrossReplica(communicator, shards, [gathered, part])[1] is part
        assert (gathered.tolist(), part.tolist()) == (TOTAL, [row[:3] for row in TOTAL])


@pytest.mark.parametrize(
    ("destination", "message"),
    [
        (None, "the destination is of type NoneType"),
        (np.frombuffer(bytes(40), np.float32).reshape(2, 5), "the destination is read-only"),
        (np.empty((2, 5)), "the destination is float64"),
        (np.zeros((), np.float32), r"the destination is float32 \[\]"),
        ([np.empty((2, 5), np.float32)], "of type list"),
    ],
)
def test_destinations_that_cannot_be_written(destination: Any, message: str) -> None:
    with gcl.connect(local_replicas=2, segment_bytes=1 << 24) as communicator:
        shards = communicator.reduce_scatter(X)
        with pytest.raises(gcl.ArgumentError, match=message):
            gcl.allGatherToDestinationCrossReplica(communicator, shards, destination)
        with pytest.raises(gcl.ArgumentError, match=r"list.*destinations"):
            gcl.allGatherToDestinationCrossReplica(communicator, [shards, shards], destination)


def test_within_a_replica() -> None:
    x = np.float32([[[1, 2], [10, 20]]])
    assert gcl.allReduceWithinReplica(x).tolist() == [[[11, 22], [11, 22]]]
    assert gcl.reduceScatterWithinReplica(x).tolist() == [[[11], [22]]]
    assert gcl.allGatherWithinReplica(gcl.reduceScatterWithinReplica(x)).tolist() == [[[[11], [22]]] * 2]


def test_names_of_the_first_release() -> None:
    for old in ("allReduce", "allReduceInPlace", "allReduceToDestination", "reduceScatter", "allGather", "allToAll"):
        assert getattr(gcl, old) is getattr(gcl, f"{old}CrossReplica")


def test_tiles() -> None:
    io = gcl.perIPUTiles(1472, 0, gcl.getMinIoTiles())
    assert len(io) == gcl.MIN_IO_TILES == 32
    assert gcl.getNumXBsUsed(io) == 16
    assert set(io).isdisjoint(gcl.perIPUTiles(1472, 32, 1440, False))
    with pytest.raises(gcl.ArgumentError, match="come in pairs"):
        gcl.perIPUTiles(1472, 0, 33)
    assert len(gcl.perIPUTiles(1472, 0, 33, tilePairs=False)) == 33
    with pytest.raises(gcl.ArgumentError, match="tiles=-4 is not valid"):
        gcl.getMinIoTiles(-4)
