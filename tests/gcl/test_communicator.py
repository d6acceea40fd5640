"""Every collective, against the reference, bit for bit: ranks as threads."""

from itertools import cycle, product

import numpy as np
import pytest

from gcl import Communicator, Group, connect_threads
from tests.gcl.helpers.checks import MEMORY, SIZES, check_all, check_collectives
from tests.gcl.helpers.reference import OPERATORS_OF, same_bits, tree
from tests.gcl.helpers.threads import on_threads

#: Replicas per rank, for each number of replicas.
SPREADS = {
    1: [(1,)],
    2: [(2,), (1, 1)],
    3: [(3,), (2, 1), (1, 1, 1)],
    4: [(4,), (2, 2), (1, 3), (1, 1, 1, 1)],
    6: [(3, 1, 2)],
    8: [(8,), (4, 4), (2, 2, 2, 2), (1,) * 8],
    16: [(16,), (4, 4, 4, 4), (1,) * 16],
}


def groups(replicas: int) -> list[Group]:
    """ALL and NONE; CONSECUTIVE, ORTHOGONAL and neither of them (a stride between) where they exist."""
    all_groups = {Group.all(replicas), Group.none(replicas)}
    if replicas % 2 == 0:
        all_groups |= {Group.consecutive(replicas, replicas // 2), Group.orthogonal(replicas, 2)}
    if replicas % 8 == 0:
        all_groups |= {Group(replicas, stride=2, size=replicas // 4)}
    return sorted(all_groups, key=lambda group: (group.size, group.stride))


CASES = [(counts, group) for n, spreads in SPREADS.items() for counts in spreads for group in groups(n)]


@pytest.mark.parametrize(("counts", "group"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_every_collective_operator_dtype_and_size(counts: tuple[int, ...], group: Group, full: bool) -> None:
    """With --full the whole product; else a seventh of it, a different one for each distribution and group."""
    sample = {} if full else {"every": 7, "start": CASES.index((counts, group))}
    on_threads(counts, lambda communicator: check_all(communicator, sizes=SIZES[:-1], **sample), group=group)


@pytest.mark.parametrize("dtype", OPERATORS_OF, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize(
    ("counts", "group"), [((1, 3), Group.all(4)), ((2, 1, 1), Group.orthogonal(4, 2)), ((3,), Group.all(3))], ids=str
)
def test_every_dtype(counts: tuple[int, ...], group: Group, dtype: type, full: bool) -> None:
    """With --full every size with every operator; else every operator, every size, and both in turn."""
    cases = list(zip(product(OPERATORS_OF[dtype], (0, 1, 7, 1000, 40_001)), cycle(MEMORY), strict=False))

    def work(communicator: Communicator) -> None:
        for (op, n), where in cases if full else cases[len(counts) % 4 :: 4]:
            check_collectives(communicator, n, dtype, op, where)

    on_threads(counts, work, group=group)


@pytest.mark.parametrize("counts", [(1,), (2, 2), (3, 1, 2), (1,) * 8], ids=str)
@pytest.mark.parametrize("where", MEMORY)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_large_tensors(counts: tuple[int, ...], where: str, dtype: type) -> None:
    """Large enough to be divided at pages, and to be chunked if they are not in a segment."""

    def work(communicator: Communicator) -> None:
        for op, n in [("add", SIZES[-1]), ("mean", 32_768), ("max", 65_537)]:
            check_collectives(communicator, n, dtype, op, where)

    on_threads(counts, work)


@pytest.mark.parametrize("counts", [(2, 1), (1,) * 4, (4, 4)], ids=str)
def test_a_million_and_three_elements(counts: tuple[int, ...]) -> None:
    on_threads(counts, lambda c: check_collectives(c, 1_000_003, np.float32, "add", "mixed"))


@pytest.mark.parametrize("group", [Group.consecutive(4, 2), Group.orthogonal(4, 2), Group.none(4)], ids=str)
@pytest.mark.parametrize("where", MEMORY)
def test_large_tensors_in_groups(group: Group, where: str) -> None:
    on_threads((1, 2, 1), lambda c: check_collectives(c, SIZES[-1], np.float16, "mean", where), group=group)


def test_views_of_allocated_and_of_private_tensors() -> None:
    """Parts of a larger tensor, as an optimiser that merges gradients has them."""

    def work(communicator: Communicator) -> None:
        larger = communicator.empty(1000)
        for tensor in (larger, np.zeros_like(larger)):
            tensor[...] = np.arange(1000) + communicator.global_offset
            part = tensor[:, 100:300]
            communicator.all_reduce(part, out=part)
            expected = np.arange(1000) + communicator.global_offset
            expected[100:300] = 3 * np.arange(100, 300) + 3
            assert tensor[0].tolist() == expected.tolist()
            square = tensor.reshape(1, 10, 100)
            assert communicator.all_gather(square).shape == (1, 3, 10, 100)
            assert communicator.broadcast(square[:, 4:6], root=1)[0, 0, 0] == 401

    on_threads((1, 1, 1), work)


def test_results_are_in_the_segment_so_that_the_next_collective_copies_nothing() -> None:
    (alone,) = connect_threads((2,), segment_bytes=1 << 24)
    total = alone.all_reduce(np.ones((2, 5), np.float32))
    again = total.__array_interface__["data"][0]
    del total
    assert alone.empty(5).__array_interface__["data"][0] == again, "it was the segment's, and is free again"


@pytest.mark.parametrize("counts", [(4,), (2, 2), (1, 3), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_special_values_combine_alike_however_replicas_are_spread(counts: tuple[int, ...], dtype: type) -> None:
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 60000, 6e-8, -1.0]
    data = np.array(list(product(special, repeat=4)), dtype).T.copy()

    def work(communicator: Communicator) -> None:
        mine = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
        for op in ("add", "mean", "mul"):
            with np.errstate(all="ignore"):
                expected = tree(data, op)
            for row in communicator.all_reduce(data[mine].copy(), op):
                assert same_bits(row, expected), op
        for op in ("min", "max"):
            results = communicator.all_gather(communicator.all_reduce(data[mine].copy(), op))[0]
            assert all(same_bits(result, results[0]) for result in results), op

    on_threads(counts, work)
