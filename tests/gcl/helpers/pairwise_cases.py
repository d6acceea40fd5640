"""Pairwise cases: a sample in which every pair of values of different factors occurs (all: ``every_collective``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, islice, product
from random import Random
from typing import Any, NamedTuple

from gcl import Group
from tests.gcl.helpers.reference import OPERATORS_OF

__all__ = ["GROUPINGS", "REPLICAS", "SIZES", "TRANSPORTS", "Case", "cases", "fits"]

#: Two fields of a Case, by index, with their values.
Pair = tuple[int, int, Any, Any]

#: Each kind of group, and the function that makes it of the replicas, if their number allows it (``fits``).
GROUPINGS: dict[str, Callable[[int], Group]] = {
    "all": Group.all,
    "none": Group.none,
    "consecutive": lambda n: Group.consecutive(n, n // 2),
    "orthogonal": lambda n: Group.orthogonal(n, 2),
    "between": lambda n: Group(n, stride=2, size=n // 4),
}
_FEWEST = {"all": 1, "none": 1, "consecutive": 2, "orthogonal": 2, "between": 8}
TRANSPORTS = ("inprocess", "shared_memory", "mpi")
REPLICAS = (1, 2, 3, 4, 8, 16)
SIZES = (0, 1, 7, 1000, 1_000_003)
_CANDIDATES = 15


def fits(replicas: int, grouping: str) -> bool:
    """Whether ``replicas`` replicas can be divided into such groups."""
    return replicas >= _FEWEST[grouping] and (replicas % 2 == 0 or grouping in ("all", "none"))


class Case(NamedTuple):
    """One communicator and one kind of tensor; every collective is run."""

    transport: str
    replicas: int
    grouping: str
    dtype: type
    op: str
    size: int

    @property
    def group(self) -> Group:
        return GROUPINGS[self.grouping](self.replicas)


#: In the order of Case.
_FACTORS = (
    TRANSPORTS,
    REPLICAS,
    tuple(GROUPINGS),
    tuple(OPERATORS_OF),
    tuple(dict.fromkeys(op for ops in OPERATORS_OF.values() for op in ops)),
    SIZES,
)
_TRANSPORT, _REPLICAS, _GROUPING, _DTYPE, _OP = range(5)
#: Pairs of factors whose values cannot all be combined, and the condition for those that can.
_GO_TOGETHER: dict[tuple[int, int], Callable[[Any, Any], bool]] = {
    (_TRANSPORT, _REPLICAS): lambda transport, replicas: replicas > 1 or transport == "inprocess",
    (_REPLICAS, _GROUPING): fits,
    (_DTYPE, _OP): lambda dtype, op: op in OPERATORS_OF[dtype],
}


def pairs_of(case: Case) -> set[Pair]:
    """The pairs that occur in ``case``."""
    return {(first, other, case[first], case[other]) for first, other in combinations(range(len(case)), 2)}


def _all_pairs() -> Iterator[Pair]:
    for first, other in combinations(range(len(_FACTORS)), 2):
        fit = _GO_TOGETHER.get((first, other), lambda a, b: True)
        yield from ((first, other, a, b) for a, b in product(_FACTORS[first], _FACTORS[other]) if fit(a, b))


def _cases_with(pair: Pair, random: Random) -> Iterator[Case]:
    while True:
        values = [random.choice(values) for values in _FACTORS]
        values[pair[0]], values[pair[1]] = pair[2:]
        if all(fit(values[first], values[other]) for (first, other), fit in _GO_TOGETHER.items()):
            yield Case(*values)


def cases() -> list[Case]:
    """Few cases with all possible pairs; large tensors have few replicas unless a pair requires many."""
    random, missing, chosen = Random(1), dict.fromkeys(_all_pairs()), list[Case]()

    def worth(case: Case) -> float:
        return sum(pair in missing for pair in pairs_of(case)) / (1e7 + case.size * case.replicas)

    while missing:
        chosen.append(max(islice(_cases_with(next(iter(missing)), random), _CANDIDATES), key=worth))
        for pair in pairs_of(chosen[-1]):
            missing.pop(pair, None)
    return chosen
