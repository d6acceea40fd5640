"""Every collective, against the reference, bit for bit: ranks as threads."""

import numpy as np
import pytest

from gcl import Group
from tests.gcl.checks import SIZES, check_all, check_collectives
from tests.gcl.threads import on_threads

#: Replicas per rank, for each number of replicas.
SPREADS = {
    1: [(1,)],
    2: [(2,), (1, 1)],
    3: [(3,), (2, 1), (1, 1, 1)],
    4: [(4,), (2, 2), (1, 3), (1, 1, 1, 1)],
    6: [(3, 1, 2)],
    8: [(8,), (4, 4), (2, 2, 2, 2), (1,) * 8],
    16: [(16,), (8, 8), (4, 4, 4, 4), (1,) * 16],
}


def groups(replicas: int) -> list[Group]:
    """ALL and NONE; CONSECUTIVE, ORTHOGONAL and neither of them (a stride between) where they exist."""
    found = {Group.all(replicas), Group.none(replicas)}
    if replicas % 2 == 0:
        found |= {Group.consecutive(replicas, 2), Group.orthogonal(replicas, 2)}
    if replicas % 8 == 0:
        found |= {Group(replicas, stride=2, size=replicas // 4), Group.orthogonal(replicas, 4)}
    return sorted(found, key=lambda group: (group.size, group.stride))


CASES = [(counts, group) for n, spreads in SPREADS.items() for counts in spreads for group in groups(n)]


@pytest.mark.parametrize(("counts", "group"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_every_collective_operator_dtype_and_size(counts: tuple[int, ...], group: Group) -> None:
    on_threads(counts, lambda communicator: check_all(communicator, sizes=SIZES[:-1]), group=group)


@pytest.mark.parametrize("counts", [(1,), (2, 2), (3, 1, 2), (1,) * 8], ids=str)
@pytest.mark.parametrize("op", ["add", "mean", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_large_tensors(counts: tuple[int, ...], op: str, dtype: type) -> None:
    on_threads(counts, lambda communicator: check_collectives(communicator, SIZES[-1], dtype, op))
