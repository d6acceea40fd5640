"""Padding: the worked examples of the reference, and that every layout can be undone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcl.core.layout import BalancedReorder, HostRearrangement, PlainPadding, graph_shard, spread
from gcl.errors import ArgumentError
from tests.gcl.helpers.untyped import ANY

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=6)
REPLICAS = st.integers(1, 9)


@pytest.mark.parametrize(
    ("elements", "splits", "shards"),
    [
        ((10,), 1, [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 0, 0]]),
        ((5, 2), 1, [[1, 2, 6], [3, 4, 7], [5, 0, 0], [0, 0, 0]]),
        ((3,), 2, [[1, 2], [3, 0], [0, 0], [0, 0]]),
        ((3,), 4, [[1, 2, 3, 0], [0] * 4, [0] * 4, [0] * 4]),
        ((0,), 4, [[], [], [], []]),
        ((0, 1), 1, [[1], [0], [0], [0]]),
    ],
)
def test_plain_padding(elements: tuple[int, ...], splits: int, shards: list[list[int]]) -> None:
    padding = PlainPadding(4, elements, splits)
    arrangement = padding.arrangement()
    tensor = np.arange(1, sum(elements) + 1)
    assert arrangement.shards(tensor).tolist() == shards
    assert arrangement.undo(arrangement.rearrange(tensor)).tolist() == tensor.tolist()


@settings(deadline=None)
@given(REPLICAS, SIZES, st.sampled_from([1, 2, 4]))
def test_plain_padding_is_blocks_per_ipu(replicas: int, sizes: list[int], splits: int) -> None:
    padding = PlainPadding(replicas, tuple(sizes), splits)
    tensor = np.arange(1, sum(sizes) + 1)
    blocks = []
    for block in np.split(tensor, np.cumsum(sizes)[:-1]):
        padded = -(-block.size // replicas) * replicas
        if block.size and padded < replicas * splits:
            padded = replicas * splits
        blocks.append(np.pad(block, (0, padded - block.size)).reshape(replicas, -1))
    expected = np.concatenate(blocks, axis=1)
    assert padding.shard == expected.shape[1]
    assert (padding.arrangement().shards(tensor) == expected).all()


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), SIZES)
def test_arrangement_for_two_levels_is_the_one_for_one_with_its_fragments_in_another_order(
    inside: int, across: int, sizes: list[int]
) -> None:
    padding = PlainPadding(inside * across, tuple(sizes))
    tensor = np.arange(1, sum(sizes) + 1)
    plain, two = padding.arrangement().rearrange(tensor), padding.arrangement(across).rearrange(tensor)
    assert (padding.shard_order(across).rearrange(plain) == two).all()
    assert (padding.shard_order(across).undo(two) == plain).all()
    shards = plain.reshape(inside * across, -1)
    first = two.reshape(inside, -1)
    for i in range(inside):
        assert sorted(first[i]) == sorted(shards[i::inside].reshape(-1))


def test_balanced_reorder_of_the_reference() -> None:
    reorder = BalancedReorder.of_sizes(4, [5, 3, 2])
    pad = -1
    shards = reorder.arrangement.shards(np.arange(10) + 1) - 1  # padding is zero, so elements are numbered from one
    assert shards.tolist() == [[0, pad, 5, 8], [1, 2, 6, 9], [3, 4, 7, pad], [pad] * 4]
    assert reorder.arrangement.addresses.tolist() == [0, 4, 5, 8, 9, 2, 6, 10, 3, 7]
    assert reorder.shard == 4
    assert PlainPadding(4, (10,)).shard == 3
    assert reorder.arrangement.gathered_size == 16


def test_the_host_record_is_slices_in_reference_order() -> None:
    record = BalancedReorder.of_sizes(4, [5, 3, 2]).arrangement
    assert record == HostRearrangement(4, 4, ((0, 1), (4, 6), (8, 10), (2, 3), (6, 7), (10, 11), (3, 4), (7, 8)))


@settings(deadline=None)
@given(REPLICAS, SIZES, st.sampled_from([1, 2, 4]))
def test_balanced_reorder_by_its_formulas(replicas: int, sizes: list[int], grain: int) -> None:
    reorder = BalancedReorder.of_sizes(replicas, sizes, grain)
    shares = [math.ceil(math.ceil(k / grain) / replicas) * grain for k in sizes]
    assert reorder.shard == sum(shares)
    if grain == 1:
        total = sum(sizes)
        assert graph_shard(total, replicas) <= reorder.shard <= graph_shard(total, replicas) + len(sizes) - 1
    tensor = np.arange(1, sum(sizes) + 1)
    shards = reorder.arrangement.shards(tensor)
    assert (reorder.arrangement.undo(shards.reshape(-1)) == tensor).all()
    start = 0
    for column, share, k in zip(np.cumsum([0, *shares]), shares, sizes, strict=False):
        tile = shards[:, column : column + share]
        assert sorted(tile[tile > 0]) == list(range(start + 1, start + k + 1))
        start += k


@settings(deadline=None)
@given(REPLICAS, st.integers(1, 40))
def test_pieces_of_a_tile(replicas: int, k: int) -> None:
    shards = BalancedReorder.of_sizes(replicas, [k]).arrangement.shards(np.arange(1, k + 1))
    pieces = -(-k // -(-k // replicas))
    for v in range(replicas):
        expected = range(v * k // pieces, (v + 1) * k // pieces) if v < pieces else range(0)
        assert [e - 1 for e in shards[v] if e] == list(expected)


def test_tiles_may_hold_several_parts_of_the_tensor() -> None:
    reorder = BalancedReorder(2, (((0, 2), (4, 6)), ((2, 4),)))
    tensor = np.arange(10, 16)
    assert reorder.arrangement.shards(tensor).tolist() == [[10, 11, 12], [14, 15, 13]]
    assert reorder.arrangement.undo(reorder.arrangement.rearrange(tensor)).tolist() == tensor.tolist()


def test_any_leading_axes_and_any_dtype() -> None:
    arrangement = PlainPadding(4, (5, 2)).arrangement()
    x = np.random.default_rng(1).random((3, 2, 7)).astype(np.float16)
    assert (arrangement.undo(arrangement.rearrange(x)) == x).all()
    assert arrangement.rearrange(x).dtype == np.float16


@pytest.mark.parametrize("tiles", [(((0, 2),), ((3, 4),)), (((0, 2),), ((1, 4),)), (((1, 2),),)])
def test_tiles_must_hold_every_element_once(tiles: tuple[tuple[tuple[int, int], ...], ...]) -> None:
    with pytest.raises(ArgumentError, match=r"each element.*once"):
        BalancedReorder(2, tiles)


def test_wrong_sizes_are_refused() -> None:
    arrangement = PlainPadding(4, (10,)).arrangement()
    with pytest.raises(ArgumentError, match=r"\[9\].*10 elements"):
        arrangement.rearrange(np.zeros(9))
    with pytest.raises(ArgumentError, match="has 12 elements"):
        arrangement.undo(np.zeros(10))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PlainPadding(0, (3,)), "replicas=0 is not valid; give a whole number of at least 1"),
        (lambda: PlainPadding(4, ANY[3], 1), "elements=3 is not valid; give a tuple of whole numbers"),
        (lambda: PlainPadding(4, (-1,)), r"elements=\(-1,\) is not valid"),
        (lambda: PlainPadding(4, (3,), 0), "splits=0 is not valid; methods cut a fragment into 1, 2, 4"),
        (lambda: PlainPadding(4, (3,), 3), "splits=3 is not valid"),
        (
            lambda: PlainPadding(4, (3,)).arrangement(3),
            "across 3 is not possible; .* divides the 4 replicas",
        ),
        (lambda: PlainPadding(4, (3,)).shard_order(0), "an order across 0 is not possible"),
        (lambda: BalancedReorder.of_sizes(0, [5]), "replicas=0 is not valid"),
        (lambda: BalancedReorder.of_sizes(2, [5], 0), "grain=0 is not valid"),
        (lambda: BalancedReorder.of_sizes(2, ANY["ab"]), "tiles of 'ab' elements are not valid"),
        (lambda: BalancedReorder.of_sizes(2, [-1]), r"tiles of \[-1\] elements are not valid"),
        (lambda: PlainPadding(4, (10,)).arrangement().rearrange(ANY[[1] * 10]), "it must be an array"),
        (lambda: graph_shard(10, 0), "replicas=0 is not valid"),
        (lambda: HostRearrangement(0, 2, ()), "replication_factor=0 is not valid"),
        (lambda: HostRearrangement(2, -1, ()), "elements_per_replica=-1 is not valid"),
        (lambda: HostRearrangement(2, 2, ((0, 5),)), r"the slice \[0, 5\) does not fit; .* within its 4 elements"),
        (lambda: HostRearrangement(2, 2, ((1, 3), (0, 2))), r"the slice \[1, 3\) .* none overlaps another"),
        (lambda: HostRearrangement(2, 2, ((2, 1),)), r"the slice \[2, 1\) does not fit"),
    ],
)
def test_invalid_layouts_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_the_graph_ignores_tiles() -> None:
    assert graph_shard(10, 4) == 3
    assert graph_shard(5, 3) == 2
    assert spread(10, 4) == (3, 3, 2, 2)
