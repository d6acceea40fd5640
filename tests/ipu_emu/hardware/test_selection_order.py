"""Selection orders: which IPU each shard gets, and how far neighbours are from each other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ipu_emu.hardware import (
    SelectionOrder,
    System,
    shard_order,
)


@pytest.mark.parametrize(
    ("order", "ipus", "expected"),
    [
        (SelectionOrder.ZIGZAG, 4, "0 1 2 3"),
        (SelectionOrder.SNAKE, 4, "0 1 3 2"),
        (SelectionOrder.HOOF, 4, "0 2 3 1"),
        (SelectionOrder.SNAKE, 8, "0 1 3 2 4 5 7 6"),
        (SelectionOrder.HOOF, 8, "0 2 4 6 7 5 3 1"),
        (SelectionOrder.SNAKE, 16, "0 1 3 2 4 5 7 6 8 9 11 10 12 13 15 14"),
        (SelectionOrder.HOOF, 16, "0 2 4 6 8 10 12 14 15 13 11 9 7 5 3 1"),
        (SelectionOrder.HOOF, 1, "0"),
        (SelectionOrder.SNAKE, 2, "0 1"),
    ],
)
def test_orders_of_shards(order: SelectionOrder, ipus: int, expected: str) -> None:
    assert " ".join(map(str, shard_order(order, ipus))) == expected


def test_neighbours_in_an_order_are_neighbours_in_the_pod() -> None:
    """Hops between consecutive shards, and from the last to the first."""
    expected = {
        SelectionOrder.ZIGZAG: ([1, 2], 4, 8),
        SelectionOrder.SNAKE: ([1], 3, 7),
        SelectionOrder.HOOF: ([1], 1, 1),
    }
    for order, (between, *round_trips) in expected.items():
        for ipus, back in zip((8, 16), round_trips, strict=True):
            system = System.pod(ipus)
            at = [system.position(ipu) for ipu in shard_order(order, ipus)]
            assert sorted({first.hops(second) for first, second in pairwise(at)}) == between
            assert at[-1].hops(at[0]) == back


def test_auto_snakes_for_pipelines_in_order() -> None:
    assert shard_order(SelectionOrder.AUTO, 4, [0, 1, 2, 3]) == shard_order(SelectionOrder.SNAKE, 4)
    assert shard_order(SelectionOrder.AUTO, 4, [0, 1, 1, 0]) == shard_order(SelectionOrder.ZIGZAG, 4)
    assert shard_order(SelectionOrder.AUTO, 4) == shard_order(SelectionOrder.ZIGZAG, 4)
