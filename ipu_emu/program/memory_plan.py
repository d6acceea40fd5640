"""MemoryPlan: the address of every tensor of a replica, decided once, so that a step allocates nothing.

    persistent   weights, states, scalars, constants, sums of anchors: each has its own memory
    transient    tensors of one step: those whose lifetimes do not overlap share memory
    streaming    variables that are off chip, in Streaming Memory
    streamed     activations that are off chip: like transient, in Streaming Memory
    bucket:T     gradients of element type T, adjacent, for one collective (see buckets.py)

Every IPU has its own regions; those of IPU 1 are persistent:1, transient:1 and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gcl.drawing.units import memory
from ipu_emu.graph import Graph, Op, Tensor
from ipu_emu.ops import Node
from ipu_emu.program.buckets import Bucket
from ipu_emu.program.memory_layout import SCRATCH, aligned

PERSISTENT = "persistent"
TRANSIENT = "transient"
STREAMING = "streaming"
STREAMED = "streamed"

#: Lifetimes that are compared at once with those near to them.
_COMPARED = 64


def region_of(kind: str, ipu: int) -> str:
    """The persistent or the transient region of an IPU."""
    return f"{kind}:{ipu}" if ipu else kind


def is_off_chip(region: str) -> bool:
    """Whether a region is in Streaming Memory."""
    return region.partition(":")[0] in (STREAMING, STREAMED)


def is_shared(region: str) -> bool:
    """Whether tensors whose lifetimes do not overlap share memory in a region."""
    return region.partition(":")[0] in (TRANSIENT, STREAMED)


def ipu_of(region: str) -> int:
    """The IPU that a region belongs to."""
    if Bucket.is_bucket(region):
        return Bucket.named(region).ipu
    return int(region.partition(":")[2] or 0)


@dataclass(frozen=True)
class Allocation:
    """Region and offset in bytes; ``batch_innermost`` is the storage order.

    A stash of a pipeline has several buffers (``places``), one after the other: micro-batch m uses buffer m modulo
    their number.
    """

    tensor: Tensor
    region: str
    offset: int
    batch_innermost: bool = False
    places: int = 1

    def offset_of(self, micro_batch: int) -> int:
        """The offset of the tensor in a micro-batch."""
        return self.offset + micro_batch % self.places * aligned(self.tensor.nbytes)


@dataclass(frozen=True)
class Lifetime:
    """A range of a transient region, in bytes, with the first and last instruction that use it."""

    name: str
    offset: int
    size: int
    first: int
    last: int
    region: str = TRANSIENT

    @property
    def is_scratch(self) -> bool:
        """Whether only a kernel of the host needs the range."""
        return self.name.startswith(SCRATCH)


@dataclass(frozen=True)
class MemoryPlan:
    """Placements by tensor id, scratch offsets (transient region) by op, region sizes in bytes.

    All regions except the transient ones are live for the whole step; ``lives`` has the lifetimes in the transient
    ones.
    """

    placements: Mapping[str, Allocation]
    scratch: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, int]
    views: frozenset[str]
    lives: tuple[Lifetime, ...] = ()

    def bytes_of(self, ipu: int) -> int:
        """Bytes of all regions on an IPU."""
        return sum(size for name, size in self.sizes.items() if ipu_of(name) == ipu and not is_off_chip(name))

    def streaming_bytes_of(self, ipu: int) -> int:
        """Bytes that an IPU uses in Streaming Memory."""
        return sum(size for name, size in self.sizes.items() if ipu_of(name) == ipu and is_off_chip(name))

    @property
    def ipus(self) -> int:
        """Number of IPUs of a replica that hold memory."""
        return 1 + max((ipu_of(region) for region in self.sizes), default=0)

    def __str__(self) -> str:
        return f"{self._regions()}\n\n{self._places()}"

    def _regions(self) -> str:
        """A line for each region: its IPU, its size, and when it is live."""
        width = max(len(region) for region in ("region", *self.sizes))
        lines = [f"{'region':{width}}  IPU  {'size':>10}"]
        for region, size in self.sizes.items():
            kind = "transient" if is_shared(region) else "always live"
            kind += ", in Streaming Memory" if is_off_chip(region) else ""
            lines.append(f"{region:{width}}  {ipu_of(region):>3}  {memory(size):>10}  {kind}")
        return "\n".join(lines)

    def _places(self) -> str:
        """A line for each tensor: its region and IPU, its offset there in bytes, and its size."""
        width = max(len(region) for region in ("region", *self.sizes))
        order = {region: number for number, region in enumerate(self.sizes)}
        lines = [f"{'region':{width}}  IPU  {'offset':>14}  {'size':>10}  tensor"]
        for id, placed in sorted(self.placements.items(), key=lambda item: (order[item[1].region], item[1].offset)):
            note = f", {placed.places} buffers" if placed.places > 1 else ""
            note += ", a view" if id in self.views else ""
            lines.append(
                f"{placed.region:{width}}  {ipu_of(placed.region):>3}  {placed.offset:>14,}  "
                f"{memory(placed.tensor.nbytes):>10}  {id}{note}"
            )
        return "\n".join(lines)

    def table(self) -> str:
        """A line for each range of transient memory, in order of address."""
        lines = [f"{'from':>12} {'bytes':>12} {'first':>6} {'last':>6}  tensor"]
        for life in sorted(self.lives, key=lambda life: (life.region, life.offset, life.first)):
            where = "" if life.region == TRANSIENT else f" ({life.region})"
            lines.append(f"{life.offset:>12,} {life.size:>12,} {life.first:>6} {life.last:>6}  {life.name}{where}")
        return "\n".join(lines)


def overlap_of(lives: Sequence[Lifetime]) -> tuple[Lifetime, Lifetime] | None:
    """Two lifetimes that occupy the same byte at the same time, or None."""
    for region in dict.fromkeys(life.region for life in lives):
        ordered = sorted((life for life in lives if life.region == region), key=lambda life: life.offset)
        rows = [(life.offset, life.offset + life.size, life.first, life.last) for life in ordered]
        offset, end, first, last = np.array(rows, np.int64).T
        until = offset.searchsorted(end)  # later ones begin before one ends
        for start in range(0, len(ordered), _COMPARED):
            some = slice(start, start + _COMPARED)
            others = slice(start + 1, int(until[some].max()))
            same = (first[others] <= last[some, None]) & (last[others] >= first[some, None])
            same &= (offset[others] < end[some, None]) & (end[others] > offset[some, None])
            conflicts = np.argwhere(np.triu(same))
            if len(conflicts):
                return ordered[start + conflicts[0, 0]], ordered[start + 1 + conflicts[0, 1]]
    return None


def node_in(graph: Graph, op: Op) -> Node:
    """``op`` with its tensors."""
    inputs = tuple(graph.tensor(id) if id else None for id in op.inputs)
    return Node(op, inputs, (), tuple(graph.tensor(id) for id in op.outputs if id))


def scratch_key(op: Op) -> str:
    return f"{op.type} {op.outputs[0]}"
