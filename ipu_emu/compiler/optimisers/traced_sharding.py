"""Traced sharding: divides the optimiser states of updates that a framework has traced between replicas.

    n = Add(Mul(m, 0.9), g)                      t = ReduceScatterGradient(g)
    v = Sub(w, Mul(n, rate))                     n = Add(Mul(m, 0.9), t)                     m is a shard
    CopyVarUpdate(m, n)                   ->     v = Sub(TakeShard(w), Mul(n, rate))
    CopyVarUpdate(w, v)                          CopyVarUpdate(m, n)
                                                 AllGatherWeight(w, v)

Element-wise ops of an update that depend on each other are a cluster. A cluster works on shards if it writes a state
that is to be sharded, and if all its operands are the same on all replicas. Operands from outside are divided, and
results that are read outside are gathered. A gradient that only a cluster reads is reduced by shards. Elements are
independent of each other, so results are bitwise the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ipu_emu.compiler.gradients.gradient import Gradient, GradientReduction
from ipu_emu.compiler.optimisers.optimiser_sharding import Divide, shard_number
from ipu_emu.graph import Graph, Op, Role, Shards, StepPhase, Tensor
from ipu_emu.ops import TABLE
from ipu_emu.ops.communication.collective_ops import (
    GATHER_SHARDS,
    GATHER_WEIGHT,
    MEAN_OPERATOR,
    OPERATOR,
    SCATTER_GRADIENT,
)
from ipu_emu.ops.communication.shard_ops import TAKE_SHARD

__all__ = ["shard_traced_states"]

_COPY = "CopyVarUpdate"
_SHARD, _GATHERED = "Shard___", "Gathered___"
#: Element-wise ops without a formula.
_MORE = frozenset({
    "And", "Clip", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Not",
    "Or", "Pow", "Reciprocal", "Sign", "Sum", "Where",
})  # fmt: skip
#: Collectives whose result all replicas share.
_SHARED = ("ReplicatedAllReduce", "ReplicatedAllGather")


def shard_traced_states(
    graph: Graph, gradients: Sequence[Gradient], divide: Divide, replicas: int, reduction: GradientReduction
) -> list[Gradient]:
    """Shard the states that ``divide`` selects; return the gradients, some of which are now reduced as shards."""
    shared = _shared(graph, gradients)
    mean = reduction is GradientReduction.MEAN_RUNNING
    scattered: set[str] = set()
    for cluster in _clusters(graph, divide):
        if cluster.read <= shared:
            scattered |= _Division(graph, cluster, gradients, replicas, mean).run()
    return [replace(one, scattered=True) if one.total in scattered else one for one in gradients]


@dataclass
class _Cluster:
    """Element-wise ops by their outputs, and the ids of the tensors that they update, read and make."""

    domain: tuple[int, int]
    shape: tuple[int, ...]
    outputs: frozenset[str]
    states: set[str] = field(default_factory=set)
    weights: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)

    def holds(self, op: Op) -> bool:
        return bool(op.outputs) and op.outputs[0] in self.outputs


def _shared(graph: Graph, gradients: Sequence[Gradient]) -> set[str]:
    """The tensors that are the same on all replicas."""
    totals = {one.total for one in gradients}
    changing = {id for id, tensor in graph.tensors.items() if tensor.role.is_variable and tensor.group is None}
    while True:
        found = {*changing, *(total for total in totals if graph.tensor(total).group is None)}
        found |= {tensor.id for tensor in graph.with_role(Role.CONSTANT, Role.SCALAR) if tensor.group is None}
        for op in graph.ops:
            known = all(id in found for id in op.inputs if id) and not TABLE[op].random
            whole = op.type in _SHARED and "__collectiveCommGroup" not in op.attributes
            if known or whole:
                found.update(id for id in op.outputs if id not in totals)
        kept = changing - {op.inputs[0] for op in graph.ops if op.type == _COPY and op.inputs[1] not in found}
        if kept == changing:
            return found
        changing = kept


def _is_divisible(graph: Graph, op: Op) -> bool:
    """Whether each element of the result depends on one element of the operands, and on scalars."""
    if op.phase is not StepPhase.UPDATE or len(op.outputs) != 1 or "axis" in op.attributes or op.guard:
        return False
    if TABLE[op].formula is None and op.type not in _MORE:
        return False
    out = graph.tensor(op.outputs[0])
    operands = [graph.tensor(id) for id in op.inputs if id]
    return bool(out.shape) and all(one.shape in (out.shape, (), (1,)) for one in operands)


def _clusters(graph: Graph, divide: Divide) -> list[_Cluster]:
    """The clusters that write a state to be sharded, and whose states no other op of the step reads."""
    parent: dict[str, str] = {}

    def root(id: str) -> str:
        while parent.setdefault(id, id) != id:
            id = parent[id]
        return id

    divisible = [op for op in graph.ops if _is_divisible(graph, op)]
    copies = [op for op in graph.ops if op.type == _COPY and op.phase is StepPhase.UPDATE]
    for op in (*divisible, *copies):
        shape = graph.tensor(op.outputs[0]).shape
        linked = [id for id in (*op.inputs, *op.outputs) if id and graph.tensor(id).shape == shape]
        linked = [id for id in linked if graph.tensor(id).role is not Role.CONSTANT]
        for id in linked[1:]:
            parent[root(id)] = root(linked[0])
    groups: dict[str, list[Op]] = defaultdict(list)
    for op in (*divisible, *copies):
        groups[root(op.outputs[0])].append(op)
    found = [_cluster(graph, ops, divide) for ops in groups.values()]
    return [one for one in found if one is not None]


def _cluster(graph: Graph, ops: list[Op], divide: Divide) -> _Cluster | None:
    """The cluster of ``ops``; None if it need not or cannot be sharded."""
    changed = [graph.tensor(op.inputs[0]) for op in ops if op.type == _COPY]
    states = [one for one in changed if one.role is Role.STATE]
    domains = {divide(state) for state in states}
    if len(domains) != 1 or None in domains or any(one.group is not None for one in changed):
        return None
    (domain,) = domains
    assert domain is not None
    made = _Cluster(domain, states[0].shape, frozenset(op.outputs[0] for op in ops))
    made.states = {one.id for one in states}
    made.weights = {one.id for one in changed} - made.states
    made.made = {op.outputs[0] for op in ops if op.type != _COPY}
    made.read = {id for op in ops for id in op.inputs if id} - made.made
    others = {name for op in graph.ops if not made.holds(op) for name in op.reads}
    if made.states & others or any(op.inputs[1] not in made.made for op in ops if op.type == _COPY):
        return None
    return made


class _Division:
    """Rewrites one cluster."""

    def __init__(
        self, graph: Graph, cluster: _Cluster, gradients: Sequence[Gradient], replicas: int, mean: bool
    ) -> None:
        self.graph, self.cluster, self.replicas, self.mean = graph, cluster, replicas, mean
        self.totals = {one.total for one in gradients}
        kinds = [graph.tensor(id).dtype.itemsize for id in (*cluster.states, *cluster.weights, *cluster.made)]
        self.shards = Shards.of(cluster.shape, min(kinds), cluster.domain, None)
        self.names: dict[str, str] = {}
        self.ops: list[Op] = []
        self.scattered: set[str] = set()

    def run(self) -> set[str]:
        """Rewrite the ops; return the gradients that are reduced by shards."""
        cluster = self.cluster
        readers: dict[str, bool] = defaultdict(lambda: True)
        for op in self.graph.ops:
            for name in op.reads:
                readers[name] &= cluster.holds(op)
        whole = (1, self.replicas)
        self.alone = {id for id in self.totals if readers[id] and cluster.domain == whole}
        self.needed = {id for id in cluster.made if not readers[id]}
        for id in cluster.states:
            tensor = self.graph.tensor(id)
            self.graph.tensors[id] = replace(tensor, shape=(self.shards.size,), group=(1, 1), shards=self.shards)
        for op in self.graph.ops:
            if cluster.holds(op):
                self.divide(op)
            else:
                names = tuple(_GATHERED + one if one in self.needed else one for one in op.inputs)
                self.ops.append(replace(op, inputs=names))
        self.graph.ops = self.ops
        return self.scattered

    def divide(self, op: Op) -> None:
        output = self.graph.tensor(op.outputs[0])
        if op.type == _COPY and op.inputs[0] in self.cluster.weights:
            self.ops.append(self.op(GATHER_WEIGHT, op.inputs, op.outputs[0], op))
            return
        inputs = tuple(self.shard(id, op) for id in op.inputs)
        self.graph.tensors[output.id] = replace(output, shape=(self.shards.size,))
        self.ops.append(replace(op, inputs=inputs))
        if output.id in self.needed:
            self.graph.add(Tensor(_GATHERED + output.id, output.dtype, output.shape))
            self.ops.append(self.op(GATHER_SHARDS, (output.id,), _GATHERED + output.id, op))

    def shard(self, id: str, reader: Op) -> str:
        """The replica's shard of an operand; scalars are unchanged."""
        cluster = self.cluster
        if not id or id in cluster.made or id in cluster.states or self.graph.tensor(id).shape != cluster.shape:
            return id
        if id not in self.names:
            shard = self.graph.unused(_SHARD + id)
            self.graph.add(Tensor(shard, self.graph.tensor(id).dtype, (self.shards.size,)))
            if id in self.alone:
                self.scattered.add(id)
                more: dict[str, object] = {OPERATOR: MEAN_OPERATOR} if self.mean else {}
                self.ops.append(self.op(SCATTER_GRADIENT, (id,), shard, reader, **more))
            else:
                self.ops.append(
                    self.op(TAKE_SHARD, (id, shard_number(self.graph, self.shards, self.replicas)), shard, reader)
                )
            self.names[id] = shard
        return self.names[id]

    def op(self, type: str, inputs: tuple[str, ...], output: str, like: Op, **attributes: object) -> Op:
        given = {"shards": self.shards} | attributes
        return Op(type, inputs, (output,), given, name=like.name, phase=StepPhase.UPDATE, place=like.place)
