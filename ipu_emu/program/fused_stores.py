"""Fused stores: ops of inference that need no pass over memory, because others store their results.

    Conv   x, w -> y          x, w -> z, a function of y that is in registers
    Fused  y -> z             nothing

    Concat a, b -> c          nothing: a and b are computed in place, as parts of c

The program, its price and the sizes of its memory do not change; a tensor y has no place in memory, z has one from
the product on, and c from the first of its parts on. If the memory would become larger, fewer ops are fused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from ipu_emu.graph import Graph, Op
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops import TABLE
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import (
    Compute,
    Instruction,
    Leaf,
    Pipeline,
    WeightUpdate,
    leaves,
    walk,
)
from ipu_emu.program.memory_layout import ALIGNMENT, MemoryBlock, lay_out
from ipu_emu.program.memory_plan import Lifetime, MemoryPlan, is_shared
from ipu_emu.program.overlapped_loops import overlapped_io
from ipu_emu.program.storage_order import order


@dataclass(frozen=True)
class FusedStores:
    """The memory plan, and the element-wise op that each product also computes, by the output of the product.

    ``joined`` are the outputs of Concat whose parts are computed in place.
    """

    plan: MemoryPlan
    functions: Mapping[str, Op] = field(default_factory=dict)
    joined: frozenset[str] = frozenset()

    @property
    def done(self) -> frozenset[str]:
        """The outputs of the ops that need no call of their own."""
        return self.joined | {op.outputs[0] for op in self.functions.values()}


#: Products and the element-wise ops that follow them, by the number of the instruction of the product.
_Pairs = Mapping[int, tuple[Op, Op]]
#: The parts of tensors that are concatenated.
_Joins = Mapping[str, tuple[str, ...]]


def fused_stores(executable: Executable) -> FusedStores:
    """Return the functions that products of ``executable`` may store, if it does not train."""
    instructions, plan = list(walk(executable.program)), executable.plan
    overlapped = any(True for part in executable.program for _ in overlapped_io(part))
    others = any(isinstance(instruction, WeightUpdate | Pipeline) for instruction in instructions)
    if others or overlapped:
        return FusedStores(plan)
    for pairs, joins in _choices(plan, _pairs(executable), _joins(executable)):
        moved = _moved(executable, pairs, joins)
        if moved:
            return FusedStores(moved, {product.outputs[0]: op for product, op in pairs.values()}, frozenset(joins))
    return FusedStores(plan)


def _choices(plan: MemoryPlan, pairs: _Pairs, joins: _Joins) -> Iterator[tuple[_Pairs, _Joins]]:
    """Yield what to fuse, the best first.

    If memory does not suffice, a single pair is usually the cause.
    """
    if joins:
        yield pairs, joins
    if pairs:
        yield pairs, {}
    for left_out in sorted(pairs, key=lambda number: -plan.placements[pairs[number][1].outputs[0]].tensor.nbytes):
        if len(pairs) > 1:
            yield {number: ops for number, ops in pairs.items() if number != left_out}, {}


def _joins(executable: Executable) -> dict[str, tuple[str, ...]]:
    """The parts that can be computed in place in the concatenated tensors."""
    plan, viewed = executable.plan, _viewed(executable)
    updated = {_root(id, viewed) for id in _owners(executable).values()}
    own = {life.name for life in plan.lives if not life.is_scratch}
    joins: dict[str, tuple[str, ...]] = {}
    used: set[str] = set()
    for body in _bodies(executable.program):
        computed = {id for _, leaf in body if type(leaf) is Compute for id in leaf.op.outputs} & own
        for op in (leaf.op for _, leaf in body if type(leaf) is Compute):
            free = len(set(op.inputs)) == len(op.inputs) and {*op.inputs, *op.outputs} <= computed - used - updated
            if op.type == "Concat" and free and not op.guard and _in_order(op, plan):
                joins[op.outputs[0]] = op.inputs
                used |= {*op.inputs, *op.outputs}
    return joins


def _in_order(op: Op, plan: MemoryPlan) -> bool:
    """Whether the inputs of a Concat are contiguous in its output, each at the start of a cache line."""
    joined, *parts = (plan.placements[id] for id in (op.outputs[0], *op.inputs))
    axis = op.attributes["axis"] % joined.tensor.rank
    outermost = order(joined.tensor, joined.batch_innermost)
    before = outermost[: outermost.index(axis)]
    return all(joined.tensor.shape[i] == 1 for i in before) and all(
        part.batch_innermost == joined.batch_innermost
        and part.region == joined.region
        and part.places == joined.places == 1
        and part.tensor.nbytes % ALIGNMENT == 0
        for part in parts
    )


def _pairs(executable: Executable) -> dict[int, tuple[Op, Op]]:
    """The products and the element-wise ops that can be fused."""
    plan = executable.plan
    readers = Counter(id for leaf in leaves(executable.program) for id in leaf.tensors)
    own = {life.name for life in plan.lives if not life.is_scratch}
    pairs: dict[int, tuple[Op, Op]] = {}
    for body in _bodies(executable.program):
        computed = [(n, leaf) for n, leaf in body if not (leaf.ops and leaf.ops[0].outputs[0] in plan.views)]
        for (number, first), (_, second) in pairwise(computed):
            if type(first) is not Compute or type(second) is not Compute:
                continue
            product, op = first.op, second.op
            if _follows(executable.graph, product, op, plan):
                y, z = product.outputs[0], op.outputs[0]
                if readers[y] == 2 and {y, z} <= own:
                    pairs[number] = product, op
    return pairs


def _bodies(program: Sequence[Instruction], number: int = 0) -> Iterator[list[tuple[int, Leaf]]]:
    """The numbered instructions of each part of a program that has no loops in it."""
    run: list[tuple[int, Leaf]] = []
    for instruction in program:
        if isinstance(instruction, Leaf):
            run.append((number, instruction))
            number += 1
            continue
        yield run
        run = []
        for body in instruction.bodies:
            yield from _bodies(body, number)
            number += sum(1 for _ in leaves(body))
    yield run


def _follows(graph: Graph, product: Op, op: Op, plan: MemoryPlan) -> bool:
    """Whether ``op`` is element-wise, and its output is stored like the result of the product, one of its inputs."""
    if op.type != "Fused" or TABLE[product].fused_store is None or product.guard or op.guard:
        return False
    places = [plan.placements[id] for id in (product.outputs[0], op.outputs[0])]
    tensors = [graph.tensor(id) for id in (*op.inputs, *op.outputs)]
    return (
        product.outputs[0] in op.inputs
        and len(op.outputs) == 1
        and product.place.ipu == op.place.ipu
        and all(tensor.dtype is FLOAT for tensor in tensors)
        and places[0].tensor.shape == places[1].tensor.shape
        and places[0].batch_innermost == places[1].batch_innermost
        and all(place.places == 1 and is_shared(place.region) for place in places)
        and places[0].region == places[1].region
    )


def _moved(executable: Executable, pairs: _Pairs, joins: _Joins) -> MemoryPlan | None:
    """The plan with the outputs of ``pairs`` live from the product on; None if it needs more memory.

    Concatenated tensors live from the first of their parts on, to the end of the last.
    """
    plan = executable.plan
    without = {ops[0].outputs[0] for ops in pairs.values()}
    begins = {ops[1].outputs[0]: number for number, ops in pairs.items()}
    owners = {part: id for id, parts in joins.items() for part in parts}
    regions: dict[str, list[MemoryBlock]] = defaultdict(list)
    blocks: dict[str, MemoryBlock] = {}
    for life in sorted(plan.lives, key=lambda life: life.name in owners):
        first = begins.get(life.name, life.first)
        if life.name in owners:
            block = blocks[owners[life.name]]
            block.first, block.last = min(block.first, first), max(block.last, life.last)
        elif life.name not in without:
            blocks[life.name] = MemoryBlock(life.name, None, life.size, first, life.last)
            regions[life.region].append(blocks[life.name])
    if any(lay_out(placed) > plan.sizes[region] for region, placed in regions.items()):
        return None
    lives = tuple(
        Lifetime(block.name, block.offset, block.size, block.first, block.last, region)
        for region, placed in regions.items()
        for block in placed
    )
    return _with_lives(executable, lives, joins)


def _with_lives(executable: Executable, lives: tuple[Lifetime, ...], joins: _Joins) -> MemoryPlan:
    """The plan with tensors, their views and scratch at the offsets of ``lives``, and parts of others in these."""
    plan, owners = executable.plan, _owners(executable) | _viewed(executable)
    offsets = {life.name: life.offset for life in lives}
    for id, parts in joins.items():
        sizes = [plan.placements[part].tensor.nbytes for part in parts]
        offsets |= dict(zip(parts, accumulate(sizes, initial=offsets[id]), strict=False))
    placements = {
        id: replace(at, offset=offsets.get(_root(id, owners), at.offset)) for id, at in plan.placements.items()
    }
    scratch = {
        key: tuple(offsets.get(MemoryBlock(key, part, 0, 0).label, old) for part, old in enumerate(parts))
        for key, parts in plan.scratch.items()
    }
    return replace(plan, placements=placements, scratch=scratch, lives=lives)


def _root(id: str, owners: Mapping[str, str]) -> str:
    """The tensor that owns the memory of another."""
    return _root(owners[id], owners) if id in owners else id


def _owners(executable: Executable) -> dict[str, str]:
    """The tensor that each updated tensor overwrites."""
    ops = (op for leaf in leaves(executable.program) for op in leaf.ops)
    return {id: op.inputs[index] for op in ops for id, index in TABLE.in_place(op) if id != op.inputs[index]}


def _viewed(executable: Executable) -> dict[str, str]:
    """The tensor of each view."""
    ops = (op for leaf in leaves(executable.program) for op in leaf.ops)
    views = executable.plan.views
    return {op.outputs[0]: op.inputs[TABLE[op].view_of or 0] for op in ops if views.intersection(op.outputs[:1])}
