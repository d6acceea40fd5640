"""Partition: the part of a data set that belongs to one of several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Sampler


class Permutations:
    """A permutation of the indices for each pass, the same in all processes; without a seed the indices in order."""

    def __init__(self, size: int, seed: int | None) -> None:
        self._size, self.shuffled = size, seed is not None
        self._generator = torch.Generator().manual_seed(seed or 0)

    def __len__(self) -> int:
        return self._size

    def __call__(self, number: int) -> Sequence[Any]:
        if not self.shuffled:
            return range(self._size)
        order: list[int] = torch.randperm(self._size, generator=self._generator).tolist()
        return order


class PartSampler(Sampler):
    """The indices of process ``number`` of ``count``, of those that ``order`` gives for each pass.

    With ``drop_last`` every process owns the same whole number of batches; if it also ``shifts``, every second pass
    is shifted, so that samples left out of one pass are used in the next.
    """

    def __init__(
        self,
        order: Callable[[int], Sequence[Any]],
        size: int,
        combined: int,
        number: int,
        count: int,
        *,
        drop_last: bool,
        shifts: bool,
    ) -> None:
        self._order, self._size, self._shifts = order, size, shifts and drop_last
        self._passes = 0
        if drop_last:
            self.share = combined * (size // (combined * count))
            self.start = number * self.share
            return
        base, rest = divmod(size, count)
        self.share = base + (number < rest)
        self.start = number * base + min(number, rest)

    def __len__(self) -> int:
        return self.share

    def __iter__(self) -> Iterator[Any]:
        order = self._order(self._passes)
        start = self.start
        if self._shifts and self.share and not self._passes % 2:
            start += self._size % self.share
        self._passes += 1
        return iter(order[start : start + self.share])
