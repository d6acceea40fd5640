"""Memory planner: lays out the memory of a program.

Lifetimes follow from the order of the instructions; a tensor and its views have one lifetime. A tensor that a
pipeline keeps between stages lives as long as the pipeline runs, and has one buffer for each micro-batch that needs
it at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ipu_emu.compiler.fusion.elementwise_fusion import fuse
from ipu_emu.compiler.memory.stash_lifetimes import Access, StashUser, Timetable
from ipu_emu.errors import InternalError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops import TABLE
from ipu_emu.ops.communication.shard_ops import collective_bytes
from ipu_emu.ops.control.loop_and_while import BODY_MEMORY_PLAN, WHILE
from ipu_emu.program.buckets import Bucket, workspace_of
from ipu_emu.program.instructions import (
    AllReduce,
    Compute,
    HostLoad,
    HostStore,
    Instruction,
    IpuCopy,
    Leaf,
    Pipeline,
    ShardCollectives,
    leaves,
    of_type,
    row,
    walk,
)
from ipu_emu.program.memory_layout import ALIGNMENT, MemoryBlock, aligned, lay_out
from ipu_emu.program.memory_plan import (
    PERSISTENT,
    STREAMED,
    STREAMING,
    TRANSIENT,
    Allocation,
    Lifetime,
    MemoryPlan,
    is_shared,
    node_in,
    overlap_of,
    region_of,
    scratch_key,
)
from ipu_emu.program.overlapped_loops import overlapped_io
from ipu_emu.program.scratch import scratch_of
from ipu_emu.program.storage_order import batch_innermost


def plan_memory(
    graph: Graph,
    program: Sequence[Instruction],
    *,
    batch_innermost: set[str],
    buckets: Mapping[str, str],
    persistent: Sequence[str],
    shared_places: Mapping[str, tuple[str, int]] = MappingProxyType({}),
) -> MemoryPlan:
    """Place all tensors of ``program``.

    ``buckets`` maps the gradients that are reduced to the regions of their buckets, in order. ``persistent`` names
    computed tensors that stay live between steps. ``shared_places`` has the regions and offsets of tensors that share
    memory in turn.
    """
    return _Planner(graph, program, batch_innermost, buckets, persistent, shared_places).plan()


class _Planner:
    def __init__(
        self,
        graph: Graph,
        program: Sequence[Instruction],
        batch_innermost: set[str],
        buckets: Mapping[str, str],
        persistent: Sequence[str],
        shared_places: Mapping[str, tuple[str, int]],
    ) -> None:
        self.graph, self.program, self.batch_innermost = graph, list(leaves(program)), batch_innermost
        self.owners: dict[str, str] = {}  # view or updated tensor: the tensor whose memory it shares
        self.views: set[str] = set()
        self.fixed = dict(buckets)
        lives_on = [
            t.id for t in graph.tensors.values() if t.id in persistent or t.role not in (Role.INPUT, Role.COMPUTED)
        ]
        self.find_owners({*buckets, *lives_on, *shared_places})
        self.ipus = self.find_ipus()
        self.fixed |= {id: self.own_region(id, PERSISTENT, STREAMING) for id in lives_on}
        self.stashes = self.find_stashes(program)
        used = range(1 + max(self.ipus.values(), default=0))
        self.sizes = {region_of(kind, ipu): 0 for ipu in used for kind in (PERSISTENT, TRANSIENT)}
        self.add_collective_workspaces()
        self.offsets = self.place_shared(shared_places)
        self.scratch: dict[str, tuple[int, ...]] = {}
        self.lives: tuple[Lifetime, ...] = ()

    def plan(self) -> MemoryPlan:
        for id, region in self.fixed.items():
            if id in self.offsets:
                continue
            self.offsets[id] = self.sizes.setdefault(region, 0)
            self.sizes[region] += aligned(self.graph.tensor(id).nbytes)
        self.add_widening_workspaces()
        self.place_transients()
        return MemoryPlan(
            {id: self.placement(id) for id in self.graph.tensors if self.root(id) in self.offsets},
            self.scratch,
            {region: max(size, ALIGNMENT) for region, size in self.sizes.items()},
            frozenset(self.views),
            self.lives,
        )

    def add_collective_workspaces(self) -> None:
        """Add buffers for collectives of shards; the collectives of one IPU share them in turn."""
        for leaf in of_type(self.program, ShardCollectives):
            region = workspace_of(leaf.ops[0]).region
            nbytes = sum(collective_bytes(node_in(self.graph, op)) for op in leaf.ops)
            self.sizes[region] = max(self.sizes.get(region, 0), nbytes)

    def add_widening_workspaces(self) -> None:
        """Add buffers in which FLOAT16 buckets are reduced in FLOAT."""
        for leaf in of_type(self.program, AllReduce):
            if leaf.rounded:
                bucket = Bucket.named(leaf.bucket)
                nbytes = self.sizes[leaf.bucket] // bucket.dtype.itemsize * FLOAT.itemsize
                self.sizes[bucket.workspace.region] = max(self.sizes.get(bucket.workspace.region, 0), nbytes)

    def place_shared(self, shared_places: Mapping[str, tuple[str, int]]) -> dict[str, int]:
        """Set the offsets of tensors that use a region in turn."""
        for id, (region, offset) in shared_places.items():
            self.fixed[id] = region
            self.sizes[region] = max(self.sizes.get(region, 0), offset + aligned(self.graph.tensor(id).nbytes))
        return {id: offset for id, (_, offset) in shared_places.items()}

    def find_owners(self, fixed: set[str]) -> None:
        for leaf in self.program:
            for op in leaf.ops:
                entry = TABLE[op]
                for output, index in TABLE.in_place(op):
                    if output != op.inputs[index]:
                        self.owners[output] = op.inputs[index]
                if entry.view_of is not None and op.outputs[0] not in fixed:
                    self.find_view(op.inputs[entry.view_of], op.outputs[0])

    def find_view(self, source: str, output: str) -> None:
        """Whether the output of an op is a view, for which storage orders must agree."""
        shapes = [self.graph.tensor(id).shape[:1] for id in (source, output)]
        innermost = {id in self.batch_innermost for id in (source, output)}
        alike = innermost == {False} or (innermost == {True} and shapes[0] == shapes[1])
        if alike or self.graph.tensor(source).nelms <= 1:
            self.owners[output] = source
            self.views.add(output)

    def root(self, id: str) -> str:
        while id in self.owners:
            id = self.owners[id]
        return id

    def find_ipus(self) -> dict[str, int]:
        """The uses of a tensor by ops; a copy on another IPU is a tensor of its own."""
        ipus: dict[str, int] = {}
        for leaf in self.program:
            for op in leaf.ops:
                for id in (*(() if type(leaf) is IpuCopy else op.reads), *op.outputs):
                    ipus[self.root(id)] = op.place.ipu
        return ipus

    def region(self, root: str) -> str:
        return self.fixed.get(root) or self.own_region(root, TRANSIENT, STREAMED)

    def own_region(self, id: str, near: str, far: str) -> str:
        """The region of a kind on the IPU of a tensor, or in its Streaming Memory."""
        return region_of(far if self.graph.tensor(id).off_chip else near, self.ipus.get(self.root(id), 0))

    def placement(self, id: str) -> Allocation:
        root = self.root(id)
        innermost, places = id in self.batch_innermost, self.stashes.places.get(root, 1)
        return Allocation(self.graph.tensor(id), self.region(root), self.offsets[root], innermost, places)

    def place_transients(self) -> None:
        """Place the largest tensor first, each at the lowest offset that no tensor occupies in its lifetime."""
        for region, wanted in self.lifetimes().items():
            self.sizes[region] = lay_out(wanted)
            self.lives += tuple(
                Lifetime(b.label, b.offset, b.size, b.first, b.last, region) for b in wanted if b.size
            )
            for block in wanted:
                if block.part is None:
                    self.offsets[block.name] = block.offset
                else:
                    self.scratch[block.name] = (*self.scratch.get(block.name, ()), block.offset)
        both = overlap_of(self.lives)
        if both:
            raise InternalError(f"the memory plan gives {both[0]} and {both[1]} the same memory at the same time")

    def lifetimes(self) -> dict[str, list[MemoryBlock]]:
        """Blocks by region."""
        blocks: dict[str, MemoryBlock] = {}
        scratch: dict[tuple[str, int], tuple[str, MemoryBlock]] = {}
        for time, leaf in enumerate(self.program):
            for root in map(self.root, leaf.tensors):
                if root not in self.fixed:
                    first, last = self.stashes.lives.get(root, (time, time))
                    size = self.stashes.places.get(root, 1) * aligned(self.graph.tensor(root).nbytes)
                    blocks.setdefault(root, MemoryBlock(root, None, size, first)).last = last
            for op in leaf.ops:
                key, region = scratch_key(op), region_of(TRANSIENT, op.place.ipu)
                for part, nelms in enumerate(scratch_of(node_in(self.graph, op)).sizes):
                    scratch[key, part] = region, MemoryBlock(key, part, aligned(4 * nelms), time, time)
        by_region: dict[str, list[MemoryBlock]] = {region: [] for region in self.sizes if is_shared(region)}
        for region, block in (*((self.region(root), block) for root, block in blocks.items()), *scratch.values()):
            by_region.setdefault(region, []).append(block)
        return by_region

    def find_stashes(self, program: Sequence[Instruction]) -> Stashes:
        """Tensors that are kept from one stage to another, or for the host while other micro-batches compute."""
        stashes = Stashes({}, {})
        start = 0
        for part in walk(program):
            for pipeline in of_type([part], Pipeline):
                self.find_kept(start, pipeline, stashes)
            self.find_overlapped(start, part, stashes)
            start += len(of_type([part], Leaf))
        return stashes

    def find_kept(self, start: int, pipeline: Pipeline, stashes: Stashes) -> None:
        end = start + sum(len(stage.body) for stage in pipeline.stages) - 1
        timetable = Timetable(pipeline)
        for root, accesses in self.accesses(pipeline).items():
            if root not in self.fixed and (len(accesses) > 1 or any(a.user is not StashUser.STAGE for a in accesses)):
                stashes.lives[root] = (start, end)
                stashes.places[root] = timetable.places(frozenset(accesses))

    def find_overlapped(self, start: int, loop: Instruction, stashes: Stashes) -> None:
        """Tensors that the host exchanges during compute: a further buffer for a store, and for each load ahead."""
        end = start + sum(1 for _ in leaves([loop])) - 1
        more = {(self.root(leaf.tensor), type(leaf)): leaf.spare_places for leaf in overlapped_io(loop)}
        for (root, _), places in more.items():
            if root not in self.fixed:
                stashes.lives[root] = (start, end)
                stashes.places[root] = stashes.places.get(root, 1) + places

    def accesses(self, pipeline: Pipeline) -> dict[str, set[Access]]:
        accesses: dict[str, set[Access]] = {}
        for number, stage in enumerate(pipeline.stages):
            for leaf in stage.body:
                for id in leaf.tensors:
                    elsewhere = self.ipus.get(self.root(id), 0) != stage.ipu
                    user = row(STASH_USERS, type(leaf))[elsewhere]
                    accesses.setdefault(self.root(id), set()).add(Access(number, user))
        return accesses


@dataclass(frozen=True)
class Stashes:
    """The lifetime and the number of buffers of tensors that are used while other micro-batches compute."""

    lives: dict[str, tuple[int, int]]
    places: dict[str, int]


#: The users of a tensor by kind of instruction: one on the IPU of the stage, and one elsewhere.
STASH_USERS: dict[type[Instruction], tuple[StashUser, StashUser]] = {
    Leaf: (StashUser.STAGE, StashUser.STAGE),
    IpuCopy: (StashUser.STAGE, StashUser.OTHER),
    HostLoad: (StashUser.LOAD, StashUser.LOAD),
    HostStore: (StashUser.STORE, StashUser.STORE),
}


def plan_bodies(graph: Graph, *, fused: bool) -> None:
    """Give every While of ``graph`` the plan of its body, inner loops first.

    The regions of a body are part of the scratch of its op. The memory of the body's inputs and outputs is never
    reused, because the op writes and reads them from outside.
    """
    graph.ops = [_planned(op, fused) if op.type == WHILE else op for op in graph.ops]


def _planned(op: Op, fused: bool) -> Op:
    body: Graph = op.attributes["body"].copy()
    if fused:
        fuse(body, body.outputs)
    plan_bodies(body, fused=fused)
    program = [Compute(inner) for inner in body.ops]
    persistent = list(dict.fromkeys([*body.inputs, *body.outputs]))
    plan = plan_memory(body, program, batch_innermost=batch_innermost(body), buckets={}, persistent=persistent)
    return replace(op, attributes={**op.attributes, "body": body, BODY_MEMORY_PLAN: plan})
