"""Benchmark trial: one collective on tensors of one size, out of place or in place, checked and timed.

collective        size counts             busbw = algbw x      in place
all_reduce        the tensor              2 (n - 1)/n          out is x
reduce_scatter    the whole input         (n - 1)/n            -
all_gather        the whole result        (n - 1)/n            x is a slice of a tensor that the host shares
all_to_all        the tensor              (n - 1)/n            -
broadcast         the tensor              1                    out is x

algbw is size / time; busbw is the rate of the links, which can be compared between numbers of ranks (nccl-tests,
doc/PERFORMANCE.md). Contributions are small whole numbers, so that every order of additions gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from gcl.communicator import Communicator
from gcl.core.operators import Operator
from gcl.core.request import REDUCING, Collective
from gcl.kernels.dtypes import sum_dtype

#: Group size -> busbw / algbw.
BUS_FACTORS: dict[Collective, Callable[[int], float]] = {
    Collective.ALL_REDUCE: lambda n: 2 * (n - 1) / n,
    Collective.REDUCE_SCATTER: lambda n: (n - 1) / n,
    Collective.ALL_GATHER: lambda n: (n - 1) / n,
    Collective.ALL_TO_ALL: lambda n: (n - 1) / n,
    Collective.BROADCAST: lambda n: 1.0,
}
#: Upper bound of contributions (default 2), so that results are exact in every dtype.
_BELOW = {Operator.MIN: 100, Operator.MAX: 100, Operator.ADD: 4, Operator.MEAN: 4}


def bus_factor(collective: Collective, size: int) -> float:
    """busbw / algbw in groups of ``size``."""
    return BUS_FACTORS[collective](size)


@dataclass(frozen=True)
class BenchCase:
    """``collective`` of tensors of ``nbytes`` (as the table of this module counts them) and ``dtype``."""

    collective: Collective
    dtype: np.dtype[Any]
    op: Operator
    nbytes: int
    private: bool = False
    root: int = 0

    def elements(self, size: int) -> int:
        """Elements of the tensor that ``nbytes`` counts, in groups of ``size``: at least one, and whole slices."""
        count = max(1, self.nbytes // self.dtype.itemsize)
        sliced = self.collective not in (Collective.ALL_REDUCE, Collective.BROADCAST)
        return max(1, count // size) * size if sliced else count

    def input_elements(self, size: int) -> int:
        """Elements that each replica gives."""
        count = self.elements(size)
        return count // size if self.collective is Collective.ALL_GATHER else count


@dataclass(frozen=True)
class BenchTrial:
    """One variant of a collective: ``reset`` fills the input, ``call`` runs it, ``result`` holds its result."""

    call: Callable[[], object]
    reset: Callable[[], None]
    result: np.ndarray
    expected: Callable[[], np.ndarray]

    def wrong(self) -> int:
        """Run it once; return the number of elements that differ from the expected result."""
        self.reset()
        self.call()
        return int(np.count_nonzero(self.result != self.expected()))

    def seconds(self, communicator: Communicator, iterations: int, warmup: int) -> float:
        """Seconds of one call on this rank, from ``iterations`` back to back."""
        self.reset()
        for _ in range(warmup):
            self.call()
        communicator.barrier()
        start = perf_counter()
        for _ in range(iterations):
            self.call()
        return (perf_counter() - start) / iterations


def trials(case: BenchCase, communicator: Communicator) -> list[BenchTrial]:
    """The trial out of place and, if the collective supports it, in place."""
    return _BUILDERS[case.collective](_Maker(case, communicator))


class _Maker:
    """Tensors and expectations of one case on one rank."""

    def __init__(self, case: BenchCase, communicator: Communicator) -> None:
        self.case, self.communicator, self.group = case, communicator, communicator.group
        self.count = case.input_elements(self.group.size)
        self.mine = range(communicator.global_offset, communicator.global_offset + communicator.local_replicas)

    def tensor(self, *shape: int) -> np.ndarray:
        """A tensor [local replicas, *shape], from the communicator or, with ``private``, from numpy."""
        if self.case.private:
            return np.zeros((self.communicator.local_replicas, *shape), self.case.dtype)
        return self.communicator.empty(shape, self.case.dtype)

    def contribution(self, replica: int) -> np.ndarray:
        """The contribution of ``replica``, which every rank can compute."""
        below = _BELOW.get(self.case.op, 2) if self.case.collective in REDUCING else 100
        values = (np.arange(self.count) * 7 + replica * 5 + np.arange(self.count) // 11) % below
        if self.case.op is Operator.MUL:
            values = values * (replica < 6) + 1  # at most 2^6
        return values.astype(self.case.dtype)

    def filler(self, x: np.ndarray) -> Callable[[], None]:
        def fill() -> None:
            for row, replica in enumerate(self.mine):
                x[row] = self.contribution(replica).reshape(x.shape[1:])

        return fill

    def members(self, replica: int) -> list[int]:
        return self.group.members(self.group.of(replica))

    def combined(self, replica: int) -> np.ndarray:
        """The reduction over the group of ``replica``."""
        op, first, *others = self.case.op, *self.members(replica)
        total = self._wide(first)
        for other in others:
            total = _COMBINE[op](total, self._wide(other))
        if op is Operator.MEAN:
            total = total / total.dtype.type(self.group.size)
        return total.astype(self.case.dtype)

    def _wide(self, replica: int) -> np.ndarray:
        values = self.contribution(replica).astype(sum_dtype(self.case.dtype))
        return values * values if self.case.op is Operator.SQUARE_ADD else values

    def rows(self, of: Callable[[int], np.ndarray]) -> Callable[[], np.ndarray]:
        return lambda: np.stack([of(replica) for replica in self.mine])


_COMBINE: dict[Operator, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    Operator.ADD: np.add,
    Operator.MEAN: np.add,
    Operator.MUL: np.multiply,
    Operator.MIN: np.minimum,
    Operator.MAX: np.maximum,
    Operator.LOGICAL_AND: np.minimum,
    Operator.LOGICAL_OR: np.maximum,
    Operator.SQUARE_ADD: np.add,
}


def _all_reduce(make: _Maker) -> list[BenchTrial]:
    communicator, op = make.communicator, make.case.op
    x, out = make.tensor(make.count), make.tensor(make.count)
    fill, expected = make.filler(x), make.rows(make.combined)
    return [
        BenchTrial(lambda: communicator.all_reduce(x, op, out=out), fill, out, expected),
        BenchTrial(lambda: communicator.all_reduce(x, op, out=x), fill, x, expected),
    ]


def _reduce_scatter(make: _Maker) -> list[BenchTrial]:
    communicator, op = make.communicator, make.case.op
    x = make.tensor(make.count)
    make.filler(x)()
    width = communicator.reduce_scatter(x, op).shape[1]  # a method may need more than n / size
    out = make.tensor(width)

    def shard(replica: int) -> np.ndarray:
        padded = np.zeros(width * make.group.size, make.case.dtype)
        padded[: make.count] = make.combined(replica)
        own = make.group.index(replica)
        return padded[own * width : (own + 1) * width]

    return [BenchTrial(lambda: communicator.reduce_scatter(x, op, out=out), make.filler(x), out, make.rows(shard))]


def _all_gather(make: _Maker) -> list[BenchTrial]:
    communicator, size = make.communicator, make.group.size
    x, out = make.tensor(make.count), make.tensor(size, make.count)

    def gathered(replica: int) -> np.ndarray:
        return np.stack([make.contribution(member) for member in make.members(replica)])

    runs = [BenchTrial(lambda: communicator.all_gather(x, out=out), make.filler(x), out, make.rows(gathered))]
    if not make.case.private and make.group.count == 1:
        shared = communicator.shared((size, make.count), make.case.dtype)
        own = shared[make.mine.start : make.mine.stop]
        runs.append(
            BenchTrial(
                lambda: communicator.all_gather(own, out=shared),
                make.filler(own),
                shared,
                lambda: gathered(make.mine.start),
            )
        )
    return runs


def _all_to_all(make: _Maker) -> list[BenchTrial]:
    communicator, size = make.communicator, make.group.size
    x, out = (make.tensor(size, make.count // size) for _ in range(2))

    def slices(replica: int) -> np.ndarray:
        own = make.group.index(replica)
        return np.stack([make.contribution(m).reshape(size, -1)[own] for m in make.members(replica)])

    return [BenchTrial(lambda: communicator.all_to_all(x, out=out), make.filler(x), out, make.rows(slices))]


def _broadcast(make: _Maker) -> list[BenchTrial]:
    communicator, root = make.communicator, make.case.root
    x, out = make.tensor(make.count), make.tensor(make.count)
    expected = make.rows(lambda replica: make.contribution(make.members(replica)[root]))
    return [
        BenchTrial(lambda: communicator.broadcast(x, root, out=out), make.filler(x), out, expected),
        BenchTrial(lambda: communicator.broadcast(x, root, out=x), make.filler(x), x, expected),
    ]


_BUILDERS: dict[Collective, Callable[[_Maker], list[BenchTrial]]] = {
    Collective.ALL_REDUCE: _all_reduce,
    Collective.REDUCE_SCATTER: _reduce_scatter,
    Collective.ALL_GATHER: _all_gather,
    Collective.ALL_TO_ALL: _all_to_all,
    Collective.BROADCAST: _broadcast,
}
