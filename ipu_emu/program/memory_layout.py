"""MemoryBlock: a range of transient memory with its lifetime; ``lay_out`` places blocks so that none overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Prefix of the names of ranges that only a kernel of the host needs.
SCRATCH = "scratch "

#: Every tensor starts at a multiple of this many bytes: a cache line, and the widest vector register.
ALIGNMENT = 64


@dataclass
class MemoryBlock:
    """A range of transient memory from its first to its last use; ``part`` numbers the scratch buffers of an op."""

    name: str
    part: int | None
    size: int
    first: int
    last: int = -1
    offset: int = 0

    @property
    def label(self) -> str:
        return self.name if self.part is None else f"{SCRATCH}{self.part} of {self.name}"


def lay_out(blocks: Sequence[MemoryBlock]) -> int:
    """Place all blocks, largest first, at the lowest offset that is free in their lifetime; return the bytes used."""
    placed = _Placed(len(blocks))
    end = 0
    for block in sorted(blocks, key=lambda b: (-b.size, b.first, b.name)):
        block.offset = placed.lowest_gap(block)
        placed.add(block)
        end = max(end, block.offset + block.size)
    return end


class _Placed:
    """The placed blocks in order of their offsets, as columns: thousands of blocks are searched in microseconds."""

    def __init__(self, most: int) -> None:
        self.count = 0
        self.table = np.zeros((4, most), np.int64)  # offset, end, first, last

    def lowest_gap(self, block: MemoryBlock) -> int:
        offsets, ends, first, last = self.table[:, : self.count]
        alive = (first <= block.last) & (last >= block.first)
        near = alive.nonzero()[0]
        reached = np.zeros(len(near) + 1, np.int64)  # before each of them
        np.maximum.accumulate(ends[near], out=reached[1:])
        wide = offsets[near] >= reached[:-1] + block.size
        return int(reached[wide.argmax() if wide.any() else -1])

    def add(self, block: MemoryBlock) -> None:
        place = int(self.table[0, : self.count].searchsorted(block.offset, "right"))
        self.table[:, place + 1 : self.count + 1] = self.table[:, place : self.count]
        self.table[:, place] = block.offset, block.offset + block.size, block.first, block.last
        self.count += 1


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
