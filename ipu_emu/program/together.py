"""Together: the collectives of shards of the update phase, several as one.

ReduceScatter a                    ReduceScatter a, b
WeightUpdate a                     WeightUpdate a
AllGather a              ->        WeightUpdate b
ReduceScatter b                    AllGather a, b
WeightUpdate b
AllGather b

Those of one kind, element type, domain and place go together up to a number of bytes. A group that scatters takes the
place of its first member, one that gathers that of its last, unless what they give or take says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from ipu_emu.graph import Graph, Op
from ipu_emu.ops import TABLE
from ipu_emu.ops.collectives import GATHER_SHARDS, GATHER_WEIGHT, OPERATOR
from ipu_emu.ops.sharding import exchanged_bytes, shards_of, shares
from ipu_emu.program.memory import node_in

__all__ = ["together"]


def together(
    graph: Graph, ops: Sequence[Op], stage_of: Callable[[Op], int], limit: int | None
) -> list[tuple[Op, ...]]:
    """``ops`` of the update phase, in groups; what belongs to no group is one alone.

    A group has at most ``limit`` bytes, or None for as many as its largest member could have: then nothing needs more
    memory than it would alone.
    """
    sizes = [exchanged_bytes(node_in(graph, op)) if shares(op) else 0 for op in ops]
    groups: list[list[int]] = []
    last: dict[Hashable, list[int]] = {}
    for index, op in enumerate(ops):
        key = (op.place, stage_of(op), op.type, op.attributes.get(OPERATOR), *_kind(graph, op))
        group = last.get(key, [])
        full = sum(sizes[i] for i in group) + sizes[index] > (max(sizes) if limit is None else limit)
        if not group or full or not _merges(op):
            group = last[key] = []
            groups.append(group)
        group.append(index)
    return [tuple(ops[index] for index in group) for group in _ordered(ops, groups)]


def _merges(op: Op) -> bool:
    """What is gathered for the sake of an op stays beside it."""
    return shares(op) and op.type != GATHER_SHARDS


def _kind(graph: Graph, op: Op) -> tuple[Hashable, ...]:
    return (graph.tensor(op.inputs[-1]).dtype.name, shards_of(op).domain) if shares(op) else ()


def _ordered(ops: Sequence[Op], groups: Sequence[list[int]]) -> Iterator[list[int]]:
    """The groups, each after those that it depends on."""
    needs = _needs(ops)
    group_of = {index: number for number, group in enumerate(groups) for index in group}
    done: set[int] = set()

    def visit(number: int) -> Iterator[list[int]]:
        if number not in done:
            done.add(number)
            for index in groups[number]:
                for needed in sorted(needs[index]):
                    yield from visit(group_of[needed])
            yield groups[number]

    for index, op in enumerate(ops):
        if op.type != GATHER_WEIGHT or index == groups[group_of[index]][-1]:
            yield from visit(group_of[index])


def _needs(ops: Sequence[Op]) -> list[set[int]]:
    """For each op those before it that make what it reads, or that use what it changes."""
    makers: dict[str, int] = {}
    users: dict[str, set[int]] = {}
    found: list[set[int]] = []
    for index, op in enumerate(ops):
        changed = [op.inputs[i] for i, _ in zip(TABLE[op].updates, op.outputs, strict=False)]
        found.append({makers[id] for id in op.reads if id in makers}.union(*(users.get(id, ()) for id in changed)))
        for id in op.reads:
            users.setdefault(id, set()).add(index)
        makers |= dict.fromkeys([*op.outputs, *changed], index)
    return found
