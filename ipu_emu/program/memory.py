"""MemoryPlan: where every tensor of a replica lies; made once, so that a step allocates nothing.

    persistent   weights, states, scalars, constants, sums of anchors: each has its own place
    transient    everything that lives within a step: places are shared by tensors that never live together
    bucket:T     gradients of element type T, one after the other, for one collective (see buckets.py)

Lifetimes come from the order of the instructions; a tensor and its views are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ipu_emu.errors import InternalError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.ops import TABLE, Node
from ipu_emu.program.instructions import (
    AccumulateAnchor,
    AccumulateGradient,
    Collective,
    Compute,
    HostLoad,
    HostStore,
    Leaf,
    WeightUpdate,
)
from ipu_emu.program.scratch import scratch_of

__all__ = [
    "PERSISTENT",
    "TRANSIENT",
    "Block",
    "Life",
    "MemoryPlan",
    "Placement",
    "clash",
    "lay_out",
    "node_in",
    "plan_memory",
]

PERSISTENT = "persistent"
TRANSIENT = "transient"

#: Every tensor starts at a multiple of this many bytes: a cache line, and the widest vector register.
_ALIGNMENT = 64


@dataclass(frozen=True)
class Placement:
    """Region and offset in bytes; ``batch_innermost`` is the storage order."""

    tensor: Tensor
    region: str
    offset: int
    batch_innermost: bool = False


@dataclass(frozen=True)
class Life:
    """A stretch of transient memory, in bytes, and the first and last instruction that use it."""

    name: str
    offset: int
    size: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        """Say whether both have a byte at one time."""
        together = self.first <= other.last and other.first <= self.last
        return together and self.offset < other.offset + other.size and other.offset < self.offset + self.size


@dataclass(frozen=True)
class MemoryPlan:
    """Placements by tensor id, scratch offsets (transient region) by op, region sizes in bytes.

    All but the transient region is always live; ``lives`` says what is not.
    """

    placements: Mapping[str, Placement]
    scratch: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, int]
    views: frozenset[str]
    lives: tuple[Life, ...] = ()

    def __str__(self) -> str:
        lines = []
        for region, size in self.sizes.items():
            kind = "not always live" if region == TRANSIENT else "always live"
            lines.append(f"{region:14} {size:>14,} bytes   {kind}")
        return "\n".join(lines)

    def table(self) -> str:
        """A line for each stretch of transient memory, by its place."""
        lines = [f"{'from':>12} {'bytes':>12} {'first':>6} {'last':>6}  tensor"]
        for life in sorted(self.lives, key=lambda life: (life.offset, life.first)):
            lines.append(f"{life.offset:>12,} {life.size:>12,} {life.first:>6} {life.last:>6}  {life.name}")
        return "\n".join(lines)


def clash(lives: Sequence[Life]) -> tuple[Life, Life] | None:
    """Two that have a byte at one time, or None."""
    ordered = sorted(lives, key=lambda life: life.offset)
    for index, life in enumerate(ordered):
        for other in ordered[index + 1 :]:
            if other.offset >= life.offset + life.size:
                break
            if life.meets(other):
                return life, other
    return None


def ops_of(leaf: Leaf) -> list[Op]:
    """The ops that an instruction runs."""
    if isinstance(leaf, Compute | WeightUpdate | Collective):
        return [leaf.op]
    if isinstance(leaf, AccumulateGradient | AccumulateAnchor):
        return [leaf.first, leaf.others]
    return []


def node_in(graph: Graph, op: Op) -> Node:
    """``op`` with its tensors; what it makes may be a tensor that exists already."""
    inputs = tuple(graph.tensor(id) if id else None for id in op.inputs)
    return Node(op, inputs, (), tuple(graph.tensor(id) for id in op.outputs))


def scratch_key(op: Op) -> str:
    return f"{op.type} {op.outputs[0]}"


def plan_memory(
    graph: Graph,
    program: Sequence[Leaf],
    *,
    batch_innermost: set[str],
    totals: Mapping[str, str],
    kept: Sequence[str],
) -> MemoryPlan:
    """Place all tensors of ``program``.

    ``totals`` maps the gradients that are reduced to the regions of their buckets, in order; ``kept`` are computed
    tensors that live on between steps.
    """
    return _Planner(graph, program, batch_innermost, totals, kept).plan()


class _Planner:
    def __init__(
        self,
        graph: Graph,
        program: Sequence[Leaf],
        batch_innermost: set[str],
        totals: Mapping[str, str],
        kept: Sequence[str],
    ) -> None:
        self.graph, self.program, self.batch_innermost = graph, program, batch_innermost
        self.fixed = dict(totals)
        for tensor in graph.tensors.values():
            if tensor.id in kept or tensor.role not in (Role.INPUT, Role.COMPUTED):
                self.fixed[tensor.id] = PERSISTENT
        self.home: dict[str, str] = {}  # a view, or an updated tensor, to the tensor whose place it has
        self.views: set[str] = set()
        self.sizes: dict[str, int] = {PERSISTENT: 0, TRANSIENT: 0}
        self.offsets: dict[str, int] = {}
        self.scratch: dict[str, tuple[int, ...]] = {}
        self.lives: tuple[Life, ...] = ()

    def plan(self) -> MemoryPlan:
        self.find_homes()
        for id, region in self.fixed.items():
            self.offsets[id] = self.sizes.setdefault(region, 0)
            self.sizes[region] += _aligned(self.graph.tensor(id).nbytes)
        self.place_transients()
        return MemoryPlan(
            {id: self.placement(id) for id in self.graph.tensors if self.root(id) in self.offsets},
            self.scratch,
            {region: max(size, _ALIGNMENT) for region, size in self.sizes.items()},
            frozenset(self.views),
            self.lives,
        )

    def find_homes(self) -> None:
        for leaf in self.program:
            for op in ops_of(leaf):
                entry = TABLE[op]
                for output, index in zip(op.outputs, entry.updates, strict=False):
                    if output != op.inputs[index]:
                        self.home[output] = op.inputs[index]
                if entry.view_of is not None and self.can_be_view(op.inputs[entry.view_of], op.outputs[0]):
                    self.home[op.outputs[0]] = op.inputs[entry.view_of]
                    self.views.add(op.outputs[0])

    def can_be_view(self, source: str, output: str) -> bool:
        """A view needs storage orders that agree, and a place that is not fixed already."""
        if output in self.fixed:
            return False
        flags = {id in self.batch_innermost for id in (source, output)}
        return len(flags) == 1 or self.graph.tensor(source).nelms <= 1

    def root(self, id: str) -> str:
        while id in self.home:
            id = self.home[id]
        return id

    def placement(self, id: str) -> Placement:
        root = self.root(id)
        region = self.fixed.get(root, TRANSIENT)
        return Placement(self.graph.tensor(id), region, self.offsets[root], id in self.batch_innermost)

    def place_transients(self) -> None:
        """Largest first, each at the lowest offset where nothing that lives at the same time lies."""
        wanted = self.lifetimes()
        self.sizes[TRANSIENT] = lay_out(wanted)
        self.lives = tuple(Life(b.label, b.offset, b.size, b.first, b.last) for b in wanted if b.size)
        both = clash(self.lives)
        if both:
            raise InternalError(f"the memory plan gives {both[0]} and {both[1]} one place at one time")
        for block in wanted:
            if block.part is None:
                self.offsets[block.name] = block.offset
            else:
                self.scratch[block.name] = (*self.scratch.get(block.name, ()), block.offset)

    def lifetimes(self) -> list[Block]:
        blocks: dict[str, Block] = {}
        scratch: dict[tuple[str, int], Block] = {}
        for time, leaf in enumerate(self.program):
            for id in self.touched(leaf):
                root = self.root(id)
                if root not in self.fixed:
                    size = _aligned(self.graph.tensor(root).nbytes)
                    blocks.setdefault(root, Block(root, None, size, time)).last = time
            for op in ops_of(leaf):
                for part, nelms in enumerate(scratch_of(node_in(self.graph, op)).sizes):
                    key = scratch_key(op)
                    scratch[key, part] = Block(key, part, _aligned(4 * nelms), time, time)
        return [*blocks.values(), *scratch.values()]

    def touched(self, leaf: Leaf) -> list[str]:
        if isinstance(leaf, HostLoad | HostStore):
            return [leaf.tensor]
        return [id for op in ops_of(leaf) for id in (*op.inputs, *op.outputs) if id]


@dataclass
class Block:
    """A stretch of transient memory from its first to its last use; ``part`` numbers the scratch of an op."""

    name: str
    part: int | None
    size: int
    first: int
    last: int = -1
    offset: int = 0

    @property
    def label(self) -> str:
        return self.name if self.part is None else f"scratch {self.part} of {self.name}"


def lay_out(blocks: Sequence[Block]) -> int:
    """Place all blocks, largest first, each at the lowest offset that is free while it lives; the bytes they take."""
    placed: list[Block] = []
    end = 0
    for block in sorted(blocks, key=lambda b: (-b.size, b.first, b.name)):
        block.offset = _lowest_gap(block, placed)
        placed.append(block)
        end = max(end, block.offset + block.size)
    return end


def _lowest_gap(block: Block, placed: Sequence[Block]) -> int:
    offset = 0
    alive = [other for other in placed if other.first <= block.last and block.first <= other.last]
    for other in sorted(alive, key=lambda b: b.offset):
        if other.offset >= offset + block.size:
            break
        offset = max(offset, other.offset + other.size)
    return offset


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
