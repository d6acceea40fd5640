"""MemoryBlock: a range of transient memory with its lifetime; ``lay_out`` places blocks so that none overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "SCRATCH", "MemoryBlock", "aligned", "lay_out"]

#: How the names of ranges begin that only a kernel of the host needs.
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
    placed: list[MemoryBlock] = []
    end = 0
    for block in sorted(blocks, key=lambda b: (-b.size, b.first, b.name)):
        block.offset = _lowest_gap(block, placed)
        placed.append(block)
        end = max(end, block.offset + block.size)
    return end


def _lowest_gap(block: MemoryBlock, placed: Sequence[MemoryBlock]) -> int:
    offset = 0
    alive = [other for other in placed if other.first <= block.last and block.first <= other.last]
    for other in sorted(alive, key=lambda b: b.offset):
        if other.offset >= offset + block.size:
            break
        offset = max(offset, other.offset + other.size)
    return offset


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
