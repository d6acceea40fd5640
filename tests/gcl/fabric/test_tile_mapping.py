"""Tiles: I/O tiles, the reorder that balances fragments over tiles, and how a fragment is selected."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcl.core.request import Collective
from gcl.cost.tile_work import TileWork
from gcl.errors import ArgumentError
from gcl.fabric.fabric import Fabric
from gcl.fabric.tile_mapping import TileBalance, check_io_tiles, exchange_buses, linear, per_ipu_tiles, selection
from gcl.scheduling.methods.method import method_chain
from gcl.scheduling.schedule import interpret, schedule


def runs(balance: TileBalance) -> Iterator[tuple[int, int, int, int]]:
    """Deal the tiles' slices round robin: (fragment, tile, first element, length) in the order of the fragments."""
    ends = list(accumulate(balance.sizes))
    following = [end - size for end, size in zip(ends, balance.sizes, strict=True)]
    most, tile, left = balance.slice_bytes // balance.itemsize, 0, sum(balance.sizes)
    for fragment in range(balance.fragments):
        wanted = min(balance.fragment, left)
        left -= wanted
        while wanted:
            length = min(most, ends[tile] - following[tile], wanted)
            if length:
                yield fragment, tile, following[tile], length
            following[tile] += length
            wanted -= length
            tile = (tile + 1) % len(balance.sizes)


def order_of(balance: TileBalance) -> list[int]:
    """For each place in the concatenated fragments, the index of its element in the tensor."""
    return [element for _, _, first, length in runs(balance) for element in range(first, first + length)]


@pytest.mark.parametrize("tiles", [1472, 1216])
@pytest.mark.parametrize("count", [32, 192, 736])
def test_io_and_compute_tiles_are_all_tiles_once(count: int, tiles: int) -> None:
    io, rest = per_ipu_tiles(0, count, tiles=tiles), per_ipu_tiles(count, tiles - count, tiles=tiles)
    assert sorted(io + rest) == list(range(tiles))
    assert io == sorted(io)
    assert exchange_buses(io) == count // 2
    gaps = np.diff(io[::2])
    assert gaps.max() <= 4 * tiles / count  # spread over the whole IPU
    unsorted = per_ipu_tiles(0, count, ordered=False, tiles=tiles)
    assert sorted(unsorted) == io != unsorted
    assert all(a // 2 == b // 2 for a, b in zip(unsorted[::2], unsorted[1::2], strict=True))


@pytest.mark.parametrize(("offset", "count"), [(-2, 4), (0, 33), (1, 32), (1470, 4)])
def test_tiles_that_are_not_there(offset: int, count: int) -> None:
    with pytest.raises(ArgumentError, match="in pairs"):
        per_ipu_tiles(offset, count)
    if offset >= 0 and offset + count <= 1472:
        assert len(per_ipu_tiles(offset, count, pairs=False)) == count


@pytest.mark.parametrize(("offset", "count"), [(0, "a"), (None, 32), (0, 32.0), (0, 1472), (-1, 3)])
def test_tiles_that_are_no_tiles(offset: Any, count: Any) -> None:
    with pytest.raises(ArgumentError, match="whole numbers"):
        per_ipu_tiles(offset, count, pairs=False)
    with pytest.raises(ArgumentError, match="in pairs"):
        per_ipu_tiles(offset, count)


@pytest.mark.parametrize("tiles", ["ab", 3, [1, None], [-1]])
def test_exchange_buses_of_no_tiles(tiles: Any) -> None:
    with pytest.raises(ArgumentError, match="list of tiles"):
        exchange_buses(tiles)


@pytest.mark.parametrize("count", [30, 33, 1472, 0])
def test_invalid_numbers_of_io_tiles_are_refused(count: int) -> None:
    with pytest.raises(ArgumentError, match="even, at least 32 and below the 1472 tiles"):
        check_io_tiles(count)


def test_slices_of_the_reference() -> None:
    """max(128, ceil(largest tile bytes / F)), in whole elements and 4-byte words."""
    assert TileBalance((100,), 4, 4).slice_bytes == 128
    assert TileBalance((100, 1000), 4, 4).slice_bytes == 1000
    assert TileBalance((1001,), 8, 2).slice_bytes == 252  # ceil(2002 / 8) = 251, in words
    assert TileBalance((6, 6, 6), 2, 64).slice_bytes == 192


def test_the_drawing_of_the_module() -> None:
    balance = TileBalance((6, 6, 6), 2, 64)
    assert order_of(balance) == [0, 1, 2, 6, 7, 8, 12, 13, 14, 3, 4, 5, 9, 10, 11, 15, 16, 17]
    assert balance.on_tile == 3


BALANCES = st.builds(
    TileBalance,
    st.lists(st.integers(0, 200), min_size=1, max_size=12).map(tuple),
    st.integers(1, 9),
    st.sampled_from([1, 2, 4, 8]),
)


@settings(deadline=None, max_examples=200)
@given(BALANCES)
def test_every_element_is_dealt_once_and_fragments_are_even(balance: TileBalance) -> None:
    n = sum(balance.sizes)
    assert sorted(order_of(balance)) == list(range(n))
    sizes: dict[int, int] = {}
    for fragment, tile, first, length in runs(balance):
        sizes[fragment] = sizes.get(fragment, 0) + length
        assert sum(balance.sizes[:tile]) <= first < first + length <= sum(balance.sizes[: tile + 1])
        assert length * balance.itemsize <= balance.slice_bytes
    wanted = [min(balance.fragment, max(0, n - f * balance.fragment)) for f in range(balance.fragments)]
    assert [sizes.get(f, 0) for f in range(balance.fragments)] == wanted


@pytest.mark.parametrize("n", [1000, 5000, 300_000])
@pytest.mark.parametrize("replicas", [2, 8])
def test_an_even_tensor_gives_every_tile_a_slice_of_each_fragment(n: int, replicas: int) -> None:
    balance = TileBalance(linear(n, 4), replicas, 4)
    held: dict[tuple[int, int], int] = {}
    for fragment, tile, _, length in runs(balance):
        held[fragment, tile] = held.get((fragment, tile), 0) + length
    for fragment in range(replicas // 2):
        assert max(length for (f, _), length in held.items() if f == fragment) == balance.on_tile


def test_the_reorder_changes_no_value() -> None:
    n, replicas = 1000, 4
    x = np.random.default_rng(1).integers(-9, 9, (replicas, n)).astype(np.int32)
    order = order_of(TileBalance(linear(n, 4, tiles=7), replicas, 4))
    plan = schedule(Collective.ALL_REDUCE, Fabric(replicas), n)
    back = np.empty_like(x)
    back[:, order] = interpret(plan, x[:, order])
    assert (back == interpret(plan, x)).all()


def test_selection() -> None:
    assert selection(96) == "dynamic slice"
    assert selection(97) == "switch"
    assert selection(97, destination=False) == "dynamic slice"
    few, many = 1472 * 4 * 96, 1472 * 4 * 97
    for n, expected in ((few, "dynamic slice"), (many, "switch")):
        plan = schedule(Collective.ALL_REDUCE, Fabric(4), n)
        assert [TileWork(plan, phase).selection for phase in plan.phases] == [expected] * 2
    gather = schedule(Collective.ALL_GATHER, Fabric(4), many)
    assert TileWork(gather, gather.phases[0]).selection == "dynamic slice"


def test_a_switch_costs_code_for_every_case() -> None:
    plan = schedule(Collective.ALL_REDUCE, Fabric(4), 1472 * 4 * 97)
    assert TileWork(plan, plan.phases[0]).memory.code == 4 * 8 * 12


@pytest.mark.parametrize(("n", "itemsize", "sizes"), [(0, 4, ()), (40, 4, (32, 8)), (1472 * 50, 4, (50,) * 1472)])
def test_linear_mapping(n: int, itemsize: int, sizes: tuple[int, ...]) -> None:
    assert linear(n, itemsize) == sizes


@pytest.mark.parametrize(
    ("chain", "fragments"),
    [
        ("clockwise_ring", 8),
        ("bidirectional_ring_pair", 16),
        ("clockwise_ring,bidirectional_ring_pair", 16),
        ("meet_in_middle_ring", 8),
    ],
)
def test_an_all_reduce_reorders_over_as_many_fragments_as_its_halves_need(chain: str, fragments: int) -> None:
    plan = schedule(Collective.ALL_REDUCE, Fabric(8), 1000, methods=method_chain(chain))
    assert [phase.reordered_over for phase in plan.phases] == [fragments] * 2
    assert schedule(Collective.REDUCE_SCATTER, Fabric(8), 1000).phases[0].reordered_over == 0
