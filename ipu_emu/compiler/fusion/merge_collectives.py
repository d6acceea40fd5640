"""Merged collectives: collectives of several tensors between replicas become one.

ReduceScatter a                    ReduceScatter a, b
WeightUpdate a                     WeightUpdate a
AllGather a              ->        WeightUpdate b
ReduceScatter b                    AllGather a, b
WeightUpdate b
AllGather b

Collectives of the same kind, element type, domain and place are merged, up to a number of bytes. A group of gathers
runs at the position of its last member, any other group at that of its first, as far as data dependencies allow. Sums
of gradients that are loaded from Streaming Memory for their reduction are merged too; groups share one region of
memory, so the next group is loaded after all readers of the one before. Sharded weights are gathered in groups too,
before the first of a group is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from itertools import groupby

from ipu_emu.graph import Graph, Op, StepPhase
from ipu_emu.ops import TABLE
from ipu_emu.ops.communication.collective_ops import GATHER_SHARDS, GATHER_WEIGHT, OPERATOR
from ipu_emu.ops.communication.memory_copy_ops import REMOTE_LOAD
from ipu_emu.ops.communication.shard_ops import CROSS_DOMAIN, collective_bytes, is_shard_collective, shards_of
from ipu_emu.program.memory_plan import node_in

#: The ops of each merged collective, in the order in which they stand in the graph, by their first outputs.
Merged = tuple[tuple[str, ...], ...]


def merge_collectives(
    graph: Graph, stage_of: Callable[[Op], int], limit: int | None, remote: Collection[str] = ()
) -> Merged:
    """Sort the ops of ``graph`` so that ops that become one collective are adjacent; return them.

    Ops of the update phase come last, and are merged among themselves. A collective has at most ``limit`` bytes; with
    None, at most as many as the largest of its IPU alone, so that no IPU needs more memory. ``remote`` names the sums
    of gradients that are loaded from Streaming Memory to be reduced.
    """
    phases = [[op for op in graph.ops if (op.phase is StepPhase.UPDATE) == updates] for updates in (False, True)]
    groups = [group for ops in phases for group in _groups(graph, ops, stage_of, limit, remote)]
    graph.ops = [op for group in groups for op in group]
    return tuple(tuple(op.outputs[0] for op in group) for group in groups if len(group) > 1)


def as_groups(ops: Sequence[Op], merged: Merged) -> list[tuple[Op, ...]]:
    """Return ``ops`` as groups: those of a merged collective, and each other op alone."""
    number = {id: index for index, ids in enumerate(merged) for id in ids}
    groups = groupby(enumerate(ops), lambda pair: number.get(next(iter(pair[1].outputs), ""), -1 - pair[0]))
    return [tuple(op for _, op in group) for _, group in groups]


def _groups(
    graph: Graph, ops: Sequence[Op], stage_of: Callable[[Op], int], limit: int | None, remote: Collection[str]
) -> list[tuple[Op, ...]]:
    """Return ``ops`` as groups: each group of several becomes one collective; any other op is a group of its own."""
    sizes = [_size(graph, op, remote) for op in ops]
    if not any(sizes):
        return [(op,) for op in ops]
    largest: dict[int, int] = {}
    for op, size in zip(ops, sizes, strict=True):
        largest[op.place.ipu] = max(size, largest.get(op.place.ipu, 0))
    groups: list[list[int]] = []
    last: dict[Hashable, list[int]] = {}
    for index, op in enumerate(ops):
        if not sizes[index] or (op.type == GATHER_SHARDS and op.phase is StepPhase.UPDATE):
            groups.append([index])
            continue
        key = (op.phase, op.place, stage_of(op), op.type, op.attributes.get(OPERATOR), *_kind(graph, op))
        group = last.get(key, [])
        most = largest[op.place.ipu] if limit is None else limit
        if not group or sum(sizes[i] for i in group) + sizes[index] > most:
            group = last[key] = []
            groups.append(group)
        group.append(index)
    loads = [index for index, op in enumerate(ops) if is_remote_load(op, remote)]
    return [tuple(ops[index] for index in group) for group in _ordered(ops, groups, loads)]


def is_remote_load(op: Op, remote: Collection[str]) -> bool:
    """Whether ``op`` loads a sum of gradients for its reduction."""
    return op.type == REMOTE_LOAD and op.inputs[0] in remote


def _size(graph: Graph, op: Op, remote: Collection[str]) -> int:
    """Return the bytes that an op exchanges between replicas; 0 for an op that is not a collective."""
    if is_remote_load(op, remote):
        return graph.tensor(op.inputs[0]).nbytes
    return collective_bytes(node_in(graph, op)) if is_shard_collective(op) else 0


def _kind(graph: Graph, op: Op) -> tuple[Hashable, ...]:
    tensor = graph.tensor(op.inputs[-1])
    return (
        tensor.dtype.name,
        *((shards_of(op).domain, op.attributes.get(CROSS_DOMAIN)) if is_shard_collective(op) else (tensor.group,)),
    )


def _ordered(ops: Sequence[Op], groups: Sequence[list[int]], loads: Sequence[int]) -> Iterator[list[int]]:
    """Yield the groups, each after the groups that it depends on."""
    needs = _needs(ops)
    for group in groups:
        if group[0] in loads:
            earlier = {id for index in loads if index < group[0] for id in ops[index].outputs}
            needs[group[0]] |= {index for index in range(group[0]) if earlier.intersection(ops[index].inputs)}
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
    """Return, for each op, the earlier ops that produce its inputs or use the tensors that it changes."""
    makers: dict[str, int] = {}
    users: dict[str, set[int]] = {}
    needs: list[set[int]] = []
    for index, op in enumerate(ops):
        changed = [op.inputs[i] for _, i in TABLE.in_place(op)]
        needs.append({makers[id] for id in op.reads if id in makers}.union(*(users.get(id, ()) for id in changed)))
        for id in op.reads:
            users.setdefault(id, set()).add(index)
        makers |= dict.fromkeys([*op.outputs, *changed], index)
    return needs
