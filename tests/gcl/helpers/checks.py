"""Checks: one rank's collectives against the reference; every rank of a communicator must run the same checks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import cycle, product

import numpy as np

from gcl import Communicator, Group
from tests.gcl.helpers import reference
from tests.gcl.helpers.reference import OPERATORS, draw, same_bits

__all__ = ["BORDERS", "DTYPES", "MEMORY", "SIZES", "check_all", "check_collectives", "check_random"]

SIZES = (0, 1, 7, 1000, 100_003)
#: Small, odd, on and around page and chunk borders.
BORDERS = (0, 1, 2, 3, 7, 63, 64, 65, 1000, 1023, 1024, 4097, 16_384, 40_000)
DTYPES = (np.float32, np.float16)


def _allocated(communicator: Communicator, rows: np.ndarray) -> np.ndarray:
    tensor = communicator.empty(rows.shape[1:], rows.dtype)
    tensor[...] = rows
    return tensor


def _private(communicator: Communicator, rows: np.ndarray) -> np.ndarray:
    return rows.copy()


def _mixed(communicator: Communicator, rows: np.ndarray) -> np.ndarray:
    """In the segment on every other rank."""
    return (_allocated if communicator.global_offset % 2 else _private)(communicator, rows)


#: A kind of memory -> the function that makes a tensor in it.
MEMORY: dict[str, Callable[[Communicator, np.ndarray], np.ndarray]] = {
    "allocated": _allocated,
    "private": _private,
    "mixed": _mixed,
}


@lru_cache(maxsize=64)
def _reduced(shape: tuple[int, int], dtype: type, op: str, group: Group) -> tuple[np.ndarray, np.ndarray]:
    """The expected result of all-reduce and reduce-scatter, computed once for all ranks that are threads."""
    data = draw(*shape, dtype)
    with np.errstate(all="ignore"):
        return reference.all_reduce(data, op, group), reference.reduce_scatter(data, op, group)


def check_all(
    communicator: Communicator,
    *,
    sizes: Iterable[int] = SIZES,
    operators: Iterable[str] = OPERATORS,
    every: int = 1,
    start: int = 0,
) -> None:
    """Every collective x operator x dtype x size; tensors are in each kind of memory in turn.

    Of that product only each case whose number is ``start`` modulo ``every``.
    """
    cases = list(zip(product(sizes, DTYPES, operators), cycle(MEMORY), strict=False))
    for (n, dtype, op), where in cases[start % every :: every]:
        check_collectives(communicator, n, dtype, op, where)


def check_collectives(communicator: Communicator, n: int, dtype: type, op: str, where: str = "allocated") -> None:
    """Every collective on ``n`` elements per replica, in place, to a destination, and to a new tensor."""
    group, make = communicator.group, MEMORY[where]
    data = draw(communicator.global_replicas, n, dtype)
    mine = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
    x = make(communicator, data[mine])

    def same(actual: np.ndarray, expected: np.ndarray, what: str) -> None:
        assert same_bits(actual, expected[mine]), f"{what} {op} {np.dtype(dtype)} n={n} {group} {where}"

    if n and n % group.size == 0:
        parts = data.reshape(len(data), group.size, -1)
        actual = communicator.all_to_all(x.reshape(len(x), group.size, -1))
        same(actual, reference.all_to_all(parts, group), "all_to_all")
    total, shards = _reduced(data.shape, dtype, op, group)
    same(communicator.all_reduce(x, op), total, "all_reduce")
    same(x, data, "input of all_reduce")
    destination = make(communicator, np.zeros_like(data[mine]))
    assert communicator.all_reduce(x, op, out=destination) is destination
    same(destination, total, "all_reduce to a destination")
    shard = communicator.reduce_scatter(x, op)
    same(shard, shards, "reduce_scatter")
    same(communicator.all_gather(shard), reference.all_gather(shards, group), "all_gather")
    root = n % group.size
    same(communicator.broadcast(x, root), reference.broadcast(data, root, group), "broadcast")
    communicator.barrier()
    assert communicator.broadcast(destination, root, out=destination) is destination
    same(destination, reference.broadcast(total, root, group), "broadcast in place")
    assert communicator.all_reduce(x, op, out=x) is x
    same(x, total, "all_reduce in place")


def check_random(communicator: Communicator, seed: int) -> None:
    """One collective that every rank draws alike, checked."""
    chance = random.Random(seed)
    kind, op = chance.choice(["reduce", "scatter", "gather", "broadcast", "barrier"]), chance.choice(OPERATORS)
    n, dtype = chance.choice(BORDERS), chance.choice(DTYPES)
    where, how = chance.choice(list(MEMORY)), chance.choice(["new", "in place", "destination"])
    group = communicator.group
    root = chance.randrange(group.size)
    if kind == "barrier":
        communicator.barrier()
        return
    data = draw(communicator.global_replicas, n, dtype, seed)
    mine = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
    x = MEMORY[where](communicator, data[mine])
    out = {"new": None, "in place": x, "destination": communicator.empty(n, dtype)}[how]
    with np.errstate(all="ignore"):
        if kind == "reduce":
            actual, expected = communicator.all_reduce(x, op, out=out), reference.all_reduce(data, op, group)
        elif kind == "scatter":
            actual, expected = communicator.reduce_scatter(x, op), reference.reduce_scatter(data, op, group)
        elif kind == "gather":
            actual, expected = communicator.all_gather(x), reference.all_gather(data, group)
        else:
            actual, expected = communicator.broadcast(x, root, out=out), reference.broadcast(data, root, group)
    assert same_bits(actual, expected[mine]), (seed, kind, op, n, dtype, where, how, root)
