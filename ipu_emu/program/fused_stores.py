"""Fused stores: element-wise ops of inference whose product stores their results instead of its own.

    Conv   x, w -> y          x, w -> z, a function of y that is in registers
    Fused  y -> z             nothing

The program, its price and the sizes of its memory stay as they are; a tensor y has no place in memory, and z has one
from the product on. Where the memory would become larger, fewer ops are fused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

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
from ipu_emu.program.memory_layout import MemoryBlock, lay_out
from ipu_emu.program.memory_plan import Lifetime, MemoryPlan, is_shared
from ipu_emu.program.overlapped_loops import overlapped_io

__all__ = ["FusedStores", "fused_stores"]


@dataclass(frozen=True)
class FusedStores:
    """The plan of the memory, and the element-wise op that each product does too, by the output of the product."""

    plan: MemoryPlan
    functions: Mapping[str, Op] = field(default_factory=dict)

    @property
    def done(self) -> frozenset[str]:
        """The outputs of these ops, which products store."""
        return frozenset(op.outputs[0] for op in self.functions.values())


def fused_stores(executable: Executable) -> FusedStores:
    """Return what products of ``executable`` may store, if it does not train."""
    whole, plan = list(walk(executable.program)), executable.plan
    overlapped = any(True for part in executable.program for _ in overlapped_io(part))
    others = any(isinstance(instruction, WeightUpdate | Pipeline) for instruction in whole)
    pairs = {} if others or overlapped else _pairs(executable)
    # Whether memory suffices is a matter of chance: most often one pair is in the way.
    for left_out in (None, *_by_size(pairs, plan)):
        chosen = {number: ops for number, ops in pairs.items() if number != left_out}
        moved = _moved(executable, chosen) if chosen else None
        if moved:
            return FusedStores(moved, {product.outputs[0]: op for product, op in chosen.values()})
    return FusedStores(plan)


def _by_size(pairs: Mapping[int, tuple[Op, Op]], plan: MemoryPlan) -> list[int]:
    """The numbers of ``pairs``, those of the largest tensors first."""
    return sorted(pairs, key=lambda number: -plan.placements[pairs[number][1].outputs[0]].tensor.nbytes)


def _pairs(executable: Executable) -> dict[int, tuple[Op, Op]]:
    """Products and the element-wise ops that follow them, by the number of the instruction of the product."""
    plan = executable.plan
    readers = Counter(id for leaf in leaves(executable.program) for id in leaf.tensors)
    own = {life.name for life in plan.lives if not life.is_scratch}
    found: dict[int, tuple[Op, Op]] = {}
    for body in _bodies(executable.program):
        computed = [(n, leaf) for n, leaf in body if not (leaf.ops and leaf.ops[0].outputs[0] in plan.views)]
        for (number, first), (_, second) in pairwise(computed):
            if type(first) is not Compute or type(second) is not Compute:
                continue
            product, op = first.op, second.op
            if _follows(executable.graph, product, op, plan):
                y, z = product.outputs[0], op.outputs[0]
                if readers[y] == 2 and {y, z} <= own:
                    found[number] = product, op
    return found


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


def _moved(executable: Executable, pairs: Mapping[int, tuple[Op, Op]]) -> MemoryPlan | None:
    """The plan with the outputs of ``pairs`` live from the product on; None if it needs more memory."""
    plan = executable.plan
    without = {ops[0].outputs[0] for ops in pairs.values()}
    begins = {ops[1].outputs[0]: number for number, ops in pairs.items()}
    regions: dict[str, list[MemoryBlock]] = defaultdict(list)
    for life in plan.lives:
        if life.name not in without:
            first = begins.get(life.name, life.first)
            regions[life.region].append(MemoryBlock(life.name, None, life.size, first, life.last))
    if any(lay_out(blocks) > plan.sizes[region] for region, blocks in regions.items()):
        return None
    lives = tuple(
        Lifetime(block.name, block.offset, block.size, block.first, block.last, region)
        for region, blocks in regions.items()
        for block in blocks
    )
    return _with_lives(executable, lives)


def _with_lives(executable: Executable, lives: tuple[Lifetime, ...]) -> MemoryPlan:
    """The plan with tensors, their views and scratch at the offsets of ``lives``."""
    plan, owners = executable.plan, _owners(executable)
    offsets = {life.name: life.offset for life in lives}

    def root(id: str) -> str:
        return root(owners[id]) if id in owners else id

    placements = {id: replace(one, offset=offsets.get(root(id), one.offset)) for id, one in plan.placements.items()}
    scratch = {
        key: tuple(offsets.get(MemoryBlock(key, part, 0, 0).label, old) for part, old in enumerate(parts))
        for key, parts in plan.scratch.items()
    }
    return replace(plan, placements=placements, scratch=scratch, lives=lives)


def _owners(executable: Executable) -> dict[str, str]:
    """The tensor in whose memory each view or updated tensor lies."""
    owners: dict[str, str] = {}
    for op in (op for leaf in leaves(executable.program) for op in leaf.ops):
        owners |= {output: op.inputs[index] for output, index in TABLE.in_place(op) if output != op.inputs[index]}
        if op.outputs and op.outputs[0] in executable.plan.views:
            owners[op.outputs[0]] = op.inputs[TABLE[op].view_of or 0]
    return owners
