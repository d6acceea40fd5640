"""Chunked all-reduce of private arrays: the size of the staging area, and the bits over several rounds."""

from __future__ import annotations

import numpy as np
import pytest

from gcl import Communicator, Group
from gcl.transport.memory.chunked import staging_layout
from tests.gcl.helpers import reference
from tests.gcl.helpers.reference import draw, same_bits
from tests.gcl.helpers.threads import on_threads

SEGMENT = 1 << 30


@pytest.mark.parametrize(
    ("counts", "chunk"),
    [((1, 1), 131072), ((1,) * 3, 131072), ((1,) * 4, 65536), ((2, 2), 131072), ((1, 3), 131072)],
    ids=str,
)
def test_chunked_reductions_stay_in_the_shared_cache(counts: tuple[int, ...], chunk: int) -> None:
    room, ranks = staging_layout(counts, SEGMENT, 0), len(counts)
    assert (room.chunk, room.sets >= 3) == (chunk, True)
    total = sum(room.nbytes(local, ranks) for local in counts)
    assert 3 << 19 < total <= 3 << 20  # more than half of 3 MiB


@pytest.mark.parametrize(("core_cache", "sets"), [(0, 12), (1 << 20, 12), (3 << 19, 3), (2 << 20, 3)])
def test_the_fewest_sets_are_used_where_they_fit_half_of_a_cores_cache(core_cache: int, sets: int) -> None:
    assert staging_layout((1, 1), SEGMENT, core_cache) == (131072, sets)


def test_many_ranks_take_smaller_chunks_and_as_few_sets_as_go() -> None:
    assert staging_layout((1,) * 8, SEGMENT, 0) == (32768, 3)
    assert staging_layout((4,) * 4, SEGMENT, 0) == (32768, 3)


def test_a_small_segment_is_mostly_left_to_tensors() -> None:
    room = staging_layout((1, 1), 1 << 20, 0)
    assert room == (65536, 4)
    assert room.nbytes(1, 2) == 1 << 18


def test_one_rank_has_no_staging_area() -> None:
    assert staging_layout((5,), SEGMENT, 0).nbytes(5, 1) == 0


@pytest.mark.parametrize(
    ("counts", "stride", "size"),
    [((1, 1), 1, 2), ((1, 2), 1, 3), ((2, 1, 1), 1, 4), ((2, 2), 2, 2), ((2, 1, 1), 1, 2), ((1, 1, 1), 1, 1)],
    ids=str,
)
def test_private_arrays_have_the_bits_of_the_tree_over_several_calls(
    counts: tuple[int, ...], stride: int, size: int
) -> None:
    """Successive calls, in place or not, reuse the sets; the last round is not full."""
    replicas = sum(counts)
    group = Group(replicas, stride, size)
    inputs = [draw(replicas, n, np.float32) for n in (300_007, 0, 1, 65_536, 180_001)]
    expected = [reference.all_reduce(data, "add", group) for data in inputs]

    def work(communicator: Communicator) -> None:
        rows = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
        for turn in range(2):
            for data, total in zip(inputs, expected, strict=True):
                x = data[rows].copy()
                out = x if turn else np.empty_like(x)
                communicator.all_reduce(x, out=out)
                assert all(same_bits(row, wanted) for row, wanted in zip(out, total[rows], strict=True))

    on_threads(counts, work, group=group)
