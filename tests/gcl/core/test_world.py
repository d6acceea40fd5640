"""Worlds: which rank owns which replicas."""

import pytest

from gcl import ArgumentError
from gcl.core.world import World


def test_replicas_are_contiguous_blocks() -> None:
    worlds = [World(rank, (3, 1, 2)) for rank in range(3)]
    assert [(world.offset, world.local) for world in worlds] == [(0, 3), (3, 1), (4, 2)]
    assert worlds[0].owners == [0, 0, 0, 1, 2, 2]
    assert (worlds[0].ranks, worlds[0].replicas) == (3, 6)


def test_ranks_are_described_by_their_replicas() -> None:
    world = World(0, (3, 1))
    assert world.describe(0) == "replicas 0 to 2 (rank 0)"
    assert world.describe(1) == "replica 3 (rank 1)"


def test_claims_that_tile_the_replicas_join() -> None:
    assert World.joined(1, [(3, 0, 6), (1, 3, 6), (2, 4, 6)]) == World(1, (3, 1, 2))


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ([(2, 0, 4), (2, 0, 4)], "rank 1 says its first replica is 0, but ranks before it own 2"),
        ([(2, 1, 4), (2, 3, 4)], "rank 0 says its first replica is 1, but ranks before it own 0"),
        ([(2, 0, 4), (2, 2, 5)], "rank 1 says there are 5 replicas, rank 0 says 4"),
        ([(2, 0, 8), (2, 2, 8)], "2 ranks own 4 replicas in total, but global_replicas is 8"),
        ([(0, 0, 2), (2, 0, 2)], "give every rank at least 1"),
        ([(-1, 0, 1), (2, -1, 1)], "give every rank at least 1"),
    ],
)
def test_contradictory_claims_are_reported_by_rank(claims: list[tuple[int, int, int]], message: str) -> None:
    errors = set()
    for rank in range(len(claims)):
        with pytest.raises(ArgumentError, match=message) as caught:
            World.joined(rank, claims)
        errors.add(str(caught.value))
    assert len(errors) == 1, "every rank must raise the same"
