"""Partition: the part of a data set that belongs to one of several processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

__all__ = ["PartSampler"]


class PartSampler(Sampler):
    """The indices of process ``number`` of ``count``.

    With ``drop_last`` every process owns the same whole number of batches. A shuffled order is the same in all
    processes; every second pass is shifted, so that samples left out of one pass are used in the next.
    """

    def __init__(
        self, size: int, combined: int, number: int, count: int, *, drop_last: bool, seed: int | None
    ) -> None:
        self._size, self._drop = size, drop_last
        self._shuffled = seed is not None
        self._generator = torch.Generator().manual_seed(seed or 0)
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
        start = self.start
        order = range(self._size)
        if self._shuffled:
            order = torch.randperm(self._size, generator=self._generator).tolist()
            if self._drop and self.share and not self._passes % 2:
                start += self._size % self.share
        self._passes += 1
        return iter(order[start : start + self.share])
