"""Update sharding: weights and optimiser states divided between replicas, each of which updates its own shard.

of a rule:
    AllReduce Accum___w                          g = ReduceScatterGradient(Accum___w)
    w, m = SgdSeparate(w, m, Accum___w)   ->     s = TakeShard(w)
                                                 s, m = SgdSeparate(s, m, g)                 m is a shard
                                                 w = AllGatherWeight(w, s)

traced by a framework:
    n = Add(Mul(m, 0.9), g)                      t = ReduceScatterGradient(g)
    v = Sub(w, Mul(n, rate))                     n = Add(Mul(m, 0.9), t)                     m is a shard
    CopyVarUpdate(m, n)                   ->     v = Sub(TakeShard(w), Mul(n, rate))
    CopyVarUpdate(w, v)                          CopyVarUpdate(m, n)
                                                 w = AllGatherWeight(w, v)

An update is the op of a rule, or a cluster of element-wise ops that depend on each other, that writes a state to be
sharded, and whose operands are the same on all replicas. Operands from outside are divided, and results that are read
outside are gathered. A gradient that only the update reads is reduced by shards; one that another op reads before,
such as gradient clipping, is reduced as a whole, and each replica takes its shard. If several domains share a weight,
replicas that hold the same shard sum it once more. A sharded weight is gathered before its first use in the forward
and in the backward pass, and needs neither TakeShard nor the gather at the end. Elements are independent of each
other in an update, so the result is bitwise the same. Lamb needs the norms of whole tensors: each replica computes a
shard of the direction, all gather it, and then update the whole weight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ipu_emu.compiler.gradients.gradient import Gradient, GradientReduction
from ipu_emu.compiler.rewriting.reserved_prefixes import UPDATED
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Place, Role, Shards, StepPhase, Tensor
from ipu_emu.graph.dtype import FLOAT, INT32, DType
from ipu_emu.ops import TABLE
from ipu_emu.ops.communication.collective_ops import (
    GATHER_SHARDS,
    GATHER_WEIGHT,
    MEAN_OPERATOR,
    OPERATOR,
    SCATTER_GRADIENT,
)
from ipu_emu.ops.communication.shard_ops import CROSS_DOMAIN, TAKE_SHARD
from ipu_emu.ops.updates.adam_update import LAMB_DIRECTION, LAMB_STEP

#: Returns the (stride, size) of the replicas between which a variable is sharded, None if it stays whole.
Divide = Callable[[Tensor], "tuple[int, int] | None"]

_COPY = "CopyVarUpdate"
_SHARD, _GATHERED, _DIRECTION, _NUMBER = "Shard___", "Gathered___", "Direction___", "shardNumber___"
#: Element-wise ops without a formula.
_MORE = frozenset({
    "And", "Clip", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Not",
    "Or", "Pow", "Reciprocal", "Sign", "Sum", "Where",
})  # fmt: skip
#: Collectives whose result all replicas share.
_SHARED = ("ReplicatedAllReduce", "ReplicatedAllGather")


def shard_variables(
    graph: Graph, gradients: Sequence[Gradient], divide: Divide, replicas: int, reduction: GradientReduction
) -> list[Gradient]:
    """Shard the variables that ``divide`` selects; return the gradients, some of which are now reduced as shards.

    Raise EmulatorError if the variables of a weight are to be sharded between different replicas.
    """
    updates = _of_rules if any(gradient.weight for gradient in gradients) else _traced
    totals = {gradient.total for gradient in gradients}
    mean = reduction is GradientReduction.MEAN_RUNNING
    sharding = _Sharding(graph, list(updates(graph, gradients, divide)), totals, replicas, mean=mean)
    sharding.run()
    return [replace(g, scattered=True) if g.total in sharding.scattered else g for g in gradients]


@dataclass
class _Update:
    """An update of tensors of one shape, as ``shards``: its ops by their first outputs, its variables and results.

    ``divided`` variables become shards; ``gathered`` weights are gathered. ``results`` may be read by ops
    outside. ``names`` maps operands from outside to their shards.
    """

    shards: Shards
    outputs: frozenset[str]
    divided: set[str]
    gathered: set[str]
    results: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)


def _of_rules(graph: Graph, gradients: Sequence[Gradient], divide: Divide) -> Iterator[_Update]:
    """The updates of weights by the op of a rule."""
    producers = graph.producers()
    for gradient in gradients:
        if not gradient.weight or gradient.joins:
            continue
        op, weight = producers[UPDATED + gradient.weight], graph.tensor(gradient.weight)
        operands = [graph.tensor(id) for id in op.inputs[1:]]
        states = [operand for operand in operands if operand.shape == weight.shape and operand.role is Role.STATE]
        domain, weight_domain = _domain(weight, states, divide)
        if domain:
            itemsize = min(graph.tensor(gradient.total).dtype.itemsize, weight.dtype.itemsize)
            shards = Shards.of(weight.shape, itemsize, domain, weight.group)
            gathered = set() if weight_domain else {weight.id}
            variables = {weight.id, *(state.id for state in states)}
            yield _Update(shards, frozenset(op.outputs[:1]), variables - gathered, gathered)


def _domain(
    weight: Tensor, states: Sequence[Tensor], divide: Divide
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The replicas between which an update and its weight are sharded; EmulatorError if its variables disagree."""
    domains = {variable.id: divide(variable) for variable in (weight, *states)}
    of_weight, of_states = domains[weight.id], {domains[state.id] for state in states}
    if len(of_states) > 1 or (of_weight is not None and of_states and of_states != {of_weight}):
        groups = ", ".join(f"{id} {_described(domain)}" for id, domain in domains.items())
        raise EmulatorError(
            f"Replicated tensor sharding of the weight {weight.id}: {groups}; shard all "
            "optimiser states of a weight between the same replicas (those of the weight, if it is sharded), or none"
        )
    return of_weight or next(iter(of_states), None), of_weight


def _described(domain: tuple[int, int] | None) -> str:
    return "whole" if domain is None else f"between {domain[1]} replicas"


def _traced(graph: Graph, gradients: Sequence[Gradient], divide: Divide) -> Iterator[_Update]:
    """The clusters that write a state to be sharded, whose states no other op of the step reads."""
    parent: dict[str, str] = {}

    def root(id: str) -> str:
        while parent.setdefault(id, id) != id:
            id = parent[id]
        return id

    ops = [op for op in graph.ops if _is_divisible(graph, op)]
    ops += [op for op in graph.ops if op.type == _COPY and op.phase is StepPhase.UPDATE]
    for op in ops:
        shape = graph.tensor(op.outputs[0]).shape
        linked = [id for id in (*op.inputs, *op.outputs) if id and graph.tensor(id).shape == shape]
        linked = [id for id in linked if graph.tensor(id).role is not Role.CONSTANT]
        for id in linked[1:]:
            parent[root(id)] = root(linked[0])
    clusters: dict[str, list[Op]] = defaultdict(list)
    for op in ops:
        clusters[root(op.outputs[0])].append(op)
    shared = _shared(graph, gradients)
    updates = (_cluster(graph, cluster, divide, shared) for cluster in clusters.values())
    return (update for update in updates if update is not None)


def _is_divisible(graph: Graph, op: Op) -> bool:
    """Whether each element of the result depends on one element of the operands, and on scalars."""
    if op.phase is not StepPhase.UPDATE or len(op.outputs) != 1 or "axis" in op.attributes or op.guard:
        return False
    if TABLE[op].formula is None and op.type not in _MORE:
        return False
    out = graph.tensor(op.outputs[0])
    operands = [graph.tensor(id) for id in op.inputs if id]
    return bool(out.shape) and all(operand.shape in (out.shape, (), (1,)) for operand in operands)


def _shared(graph: Graph, gradients: Sequence[Gradient]) -> set[str]:
    """The tensors that are the same on all replicas."""
    totals = {gradient.total for gradient in gradients}
    changing = {id for id, tensor in graph.tensors.items() if tensor.role.is_variable and tensor.group is None}
    while True:
        shared = {*changing, *(total for total in totals if graph.tensor(total).group is None)}
        shared |= {tensor.id for tensor in graph.with_role(Role.CONSTANT, Role.SCALAR) if tensor.group is None}
        for op in graph.ops:
            known = all(id in shared for id in op.inputs if id) and not TABLE[op].random
            collective = op.type in _SHARED and "__collectiveCommGroup" not in op.attributes
            if known or collective:
                shared.update(id for id in op.outputs if id not in totals)
        left = changing - {op.inputs[0] for op in graph.ops if op.type == _COPY and op.inputs[1] not in shared}
        if left == changing:
            return shared
        changing = left


def _cluster(graph: Graph, ops: list[Op], divide: Divide, shared: set[str]) -> _Update | None:
    """The update by ``ops``; None if it need not or cannot be sharded."""
    changed = [graph.tensor(op.inputs[0]) for op in ops if op.type == _COPY]
    states = {tensor.id for tensor in changed if tensor.role is Role.STATE}
    domains = {divide(graph.tensor(id)) for id in states}
    domain = next(iter(domains), None)
    if len(domains) != 1 or domain is None or any(tensor.group is not None for tensor in changed):
        return None
    outputs, results = frozenset(op.outputs[0] for op in ops), {op.outputs[0] for op in ops if op.type != _COPY}
    read = {id for op in ops for id in op.inputs if id} - results
    others = {id for op in graph.ops if outputs.isdisjoint(op.outputs[:1]) for id in op.reads}
    if states & others or any(op.inputs[1] not in results for op in ops if op.type == _COPY) or not read <= shared:
        return None
    variables = {tensor.id for tensor in changed}
    itemsize = min(graph.tensor(id).dtype.itemsize for id in variables | results)
    return _Update(Shards.of(changed[0].shape, itemsize, domain, None), outputs, states, variables - states, results)


class _Sharding:
    """Rewrites a graph for ``updates``; ``scattered`` are then the gradients that are reduced by shards."""

    def __init__(
        self, graph: Graph, updates: Sequence[_Update], totals: set[str], replicas: int, *, mean: bool
    ) -> None:
        self.graph, self.replicas = graph, replicas
        self.operator: dict[str, object] = {OPERATOR: MEAN_OPERATOR} if mean else {}
        self.updates = {id: update for update in updates for id in update.outputs}
        self.weights = {
            id: update for update in updates for id in update.divided if graph.tensor(id).role is Role.WEIGHT
        }
        readers: dict[str, list[_Update | None]] = defaultdict(list)
        for op in graph.ops:
            for id in op.reads:
                readers[id].append(self.update_of(op))
        self.read_outside = {id for id, ups in readers.items() if any(up is not ups[0] for up in ups) or not ups[0]}
        self.totals = totals - self.read_outside
        self.scattered, self.gathered = set[str](), dict[str, str]()
        self.copies: dict[tuple[str, StepPhase, Place], str] = {}
        self.ops: list[Op] = []

    def run(self) -> None:
        for update in self.updates.values():
            for id in update.divided:
                tensor, size = self.graph.tensor(id), update.shards.size
                self.graph.tensors[id] = replace(tensor, shape=(size,), group=(1, 1), shards=update.shards)
        for op in self.graph.ops:
            own = self.update_of(op)
            if own is None:
                inputs = tuple(self.source_of(id, op) for id in op.inputs)
                self.ops.append(op if inputs == op.inputs else replace(op, inputs=inputs))
            else:
                (self.divide_lamb if op.attributes.get("norms") else self.divide)(op, own)
        self.graph.ops = self.ops

    def update_of(self, op: Op) -> _Update | None:
        return self.updates.get(op.outputs[0]) if op.outputs else None

    def source_of(self, id: str, op: Op) -> str:
        """What ``op``, outside the updates, reads; a weight is gathered once in each pass, and on each IPU."""
        if id not in self.weights or op.phase is StepPhase.UPDATE:
            return self.gathered.get(id, id)
        key = (id, op.phase, op.place)
        if key not in self.copies:
            shards = self.weights[id].shards
            self.copies[key] = self.new(_GATHERED + id, id, shards.shape)
            gather = Op(GATHER_SHARDS, (id,), (self.copies[key],), {"shards": shards}, phase=op.phase, place=op.place)
            self.ops.append(gather)
        return self.copies[key]

    def divide(self, op: Op, update: _Update) -> None:
        """Let an element-wise op compute shards; a weight that stays whole is gathered from the new shards."""
        if op.type == _COPY and op.inputs[0] in update.gathered:
            self.append(GATHER_WEIGHT, op.inputs, op.outputs[0], op, update)
            return
        inputs, outputs = tuple(self.shard(id, op, update) for id in op.inputs), op.outputs
        updated = {op.inputs[index] for _, index in TABLE.in_place(op)}
        weight = next(iter(updated & update.gathered), None)
        if weight:
            outputs = (self.new(UPDATED + _SHARD + weight, outputs[0], (update.shards.size,)), *outputs[1:])
        self.reshape(outputs, update)
        self.ops.append(replace(op, inputs=inputs, outputs=outputs))
        if weight:
            self.append(GATHER_WEIGHT, (weight, outputs[0]), op.outputs[0], op, update)
        for id in update.results.intersection(outputs) & self.read_outside:
            self.gathered[id] = self.new(_GATHERED + id, id, update.shards.shape)
            self.append(GATHER_SHARDS, (id,), self.gathered[id], op, update)

    def divide_lamb(self, op: Op, update: _Update) -> None:
        """Replace Lamb by ops of shards; the direction is gathered: the step needs the norms of whole tensors."""
        weight, shape, is_whole = op.inputs[0], update.shards.shape, op.inputs[0] in update.gathered
        rate, decay, c1, c2, eps, most, scale = op.inputs[5:]
        gradient, own = (self.shard(id, op, update) for id in (op.inputs[4], weight))
        self.reshape(op.outputs[1:] if is_whole else op.outputs, update)
        shard = self.new(_DIRECTION + weight, weight, (update.shards.size,), FLOAT)
        direction = self.new(_GATHERED + shard, weight, shape, FLOAT)
        inputs = (own, *op.inputs[1:4], gradient, decay, c1, c2, eps, scale)
        self.ops.append(Op(LAMB_DIRECTION, inputs, (*op.outputs[1:], shard), op.attributes, phase=StepPhase.UPDATE))
        self.append(GATHER_SHARDS, (shard,), direction, op, update)
        inputs = (weight, direction, weight, direction)
        if not is_whole:
            near = self.new(f"{_GATHERED}{UPDATED}{weight}", weight, shape)
            self.append(GATHER_SHARDS, (weight,), near, op, update)
            inputs = (weight, shard, near, direction)
        self.ops.append(Op(LAMB_STEP, (*inputs, rate, most), op.outputs[:1], phase=StepPhase.UPDATE))

    def shard(self, id: str, op: Op, update: _Update) -> str:
        """The replica's shard of an operand of ``op``; scalars are unchanged."""
        inside = id in update.results or id in update.divided
        if not id or inside or self.graph.tensor(id).shape != update.shards.shape:
            return id
        if id not in update.names:
            update.names[id] = shard = self.new(_SHARD + id, id, (update.shards.size,))
            if id in self.totals and self.is_reduced_by_shards(id, update):
                self.scattered.add(id)
                attributes = self.operator | self.cross_domain(id, update)
                self.append(SCATTER_GRADIENT, (id,), shard, op, update, **attributes)
            else:
                self.append(TAKE_SHARD, (id, self.shard_number(update.shards)), shard, op, update)
        return update.names[id]

    def is_reduced_by_shards(self, total: str, update: _Update) -> bool:
        """Whether reducing a gradient by shards gives bitwise the same result as reducing it as a whole.

        If several domains share a weight, that holds if a domain is a subtree of the tree in which replicas are
        summed, and sums are not rounded in between.
        """
        tensor, domain = self.graph.tensor(total), update.shards.domain
        group, size = tensor.group or (1, self.replicas), domain[1]
        return domain == group or (domain[0] == group[0] == 1 and not size & (size - 1) and tensor.dtype is FLOAT)

    def cross_domain(self, total: str, update: _Update) -> dict[str, object]:
        size, (_, sharing) = update.shards.domain[1], self.graph.tensor(total).group or (1, self.replicas)
        return {CROSS_DOMAIN: (size, sharing // size)} if size < sharing else {}

    def shard_number(self, shards: Shards) -> str:
        """The id of a constant that differs between replicas: the index of the shard that each one holds."""
        stride, size = shards.domain
        id = f"{_NUMBER}{stride}x{size}"
        if id not in self.graph.tensors:
            numbers = np.arange(self.replicas, dtype=np.int32) // stride % size
            self.graph.add(Tensor(id, INT32, (), Role.CONSTANT, group=(1, 1)), numbers)
        return id

    def reshape(self, outputs: Iterable[str], update: _Update) -> None:
        for id in outputs:
            if self.graph.tensor(id).shape == update.shards.shape:
                self.graph.tensors[id] = replace(self.graph.tensor(id), shape=(update.shards.size,))

    def new(self, id: str, like: str, shape: tuple[int, ...], dtype: DType | None = None) -> str:
        return self.graph.add(Tensor(self.graph.unused(id), dtype or self.graph.tensor(like).dtype, shape)).id

    def append(
        self, type: str, inputs: tuple[str, ...], output: str, like: Op, update: _Update, **attributes: object
    ) -> None:
        attributes = {"shards": update.shards} | attributes
        self.ops.append(Op(type, inputs, (output,), attributes, name=like.name, phase=like.phase, place=like.place))
