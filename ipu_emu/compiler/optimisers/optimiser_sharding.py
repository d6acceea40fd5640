"""Optimiser sharding: weights and optimiser states divided between replicas, each of which updates its own shard.

    AllReduce Accum___w                          g = ReduceScatterGradient(Accum___w)
    w, m = SgdSeparate(w, m, Accum___w)   ->     s = TakeShard(w)
                                                 s, m = SgdSeparate(s, m, g)                 m is a shard
                                                 w = AllGatherWeight(w, s)

A sharded weight is gathered before its first use in the forward and in the backward pass, and needs neither TakeShard
nor the gather at the end. A gradient that another op reads before the update, such as gradient clipping, is reduced
as a whole, and each replica takes its shard. If several domains share a weight, replicas that hold the same shard sum
it once more. Elements are independent of each other in an update, so the result is bitwise the same. Lamb needs the
norms of whole tensors: each replica computes a shard of the direction, all gather it, and then update the whole
weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ipu_emu.compiler.gradients.gradient import Gradient, GradientReduction
from ipu_emu.compiler.rewriting.reserved_prefixes import UPDATED
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Place, Role, Shards, StepPhase, Tensor
from ipu_emu.graph.dtype import FLOAT, INT32, DType
from ipu_emu.ops.communication.collective_ops import (
    GATHER_SHARDS,
    GATHER_WEIGHT,
    MEAN_OPERATOR,
    OPERATOR,
    SCATTER_GRADIENT,
)
from ipu_emu.ops.communication.shard_ops import CROSS_DOMAIN, TAKE_SHARD
from ipu_emu.ops.updates.adam_update import LAMB_DIRECTION, LAMB_STEP

__all__ = ["Divide", "shard_number", "shard_variables"]

#: Returns the (stride, size) of the replicas between which a variable is sharded, None if it stays whole.
Divide = Callable[[Tensor], "tuple[int, int] | None"]

_SHARD, _GATHERED, _DIRECTION, _NUMBER = "Shard___", "Gathered___", "Direction___", "shardNumber___"


def shard_variables(
    graph: Graph, gradients: Sequence[Gradient], divide: Divide, replicas: int, reduction: GradientReduction
) -> list[Gradient]:
    """Shard the variables that ``divide`` selects; return the gradients, some of which are now reduced as shards."""
    producers, made = graph.producers(), []
    for gradient in gradients:
        updates = gradient.weight and not gradient.joins
        update = _Update.of(graph, gradient.weight, producers) if updates else None
        domain = _domain(update, divide) if update else None
        if update and domain:
            gradient = _sharded(graph, gradient, update, domain, divide, replicas, reduction)
            producers = graph.producers()
        made.append(gradient)
    return made


@dataclass(frozen=True)
class _Update:
    """The op that updates ``weight``, with the ``states`` of the weight's shape."""

    op: Op
    weight: Tensor
    states: tuple[Tensor, ...]
    gradient: str

    @classmethod
    def of(cls, graph: Graph, weight: str, producers: Mapping[str, Op]) -> _Update:
        op = producers[UPDATED + weight]
        whole = [graph.tensor(id) for id in op.inputs[1:] if graph.tensor(id).shape == graph.tensor(weight).shape]
        states = tuple(tensor for tensor in whole if tensor.role is Role.STATE)
        gradient = next(tensor.id for tensor in whole if tensor.role is not Role.STATE)
        return cls(op, graph.tensor(weight), states, gradient)


def _sharded(
    graph: Graph,
    gradient: Gradient,
    update: _Update,
    domain: tuple[int, int],
    divide: Divide,
    replicas: int,
    reduction: GradientReduction,
) -> Gradient:
    total = graph.tensor(gradient.total)
    itemsize = min(total.dtype.itemsize, update.weight.dtype.itemsize)
    shards = Shards.of(update.weight.shape, itemsize, domain, update.weight.group)
    scattered = update.gradient == total.id and _by_shards(total, domain, replicas)
    _Division(graph, update, shards, replicas, divide).run(scattered, reduction is GradientReduction.MEAN_RUNNING)
    return replace(gradient, scattered=scattered)


def _by_shards(total: Tensor, domain: tuple[int, int], replicas: int) -> bool:
    """Whether reducing a gradient by shards gives bitwise the same result as reducing it as a whole.

    If several domains share a weight, that holds if a domain is a subtree of the tree in which replicas are summed,
    and sums are not rounded in between.
    """
    whole = total.group or (1, replicas)
    size = domain[1]
    return domain == whole or (domain[0] == whole[0] == 1 and not size & (size - 1) and total.dtype is FLOAT)


def _domain(update: _Update, divide: Divide) -> tuple[int, int] | None:
    """Return the replicas between which an update is sharded; raise EmulatorError if its variables disagree."""
    variables = [update.weight, *update.states]
    asked = {tensor.id: divide(tensor) for tensor in variables}
    states = {asked[state.id] for state in update.states}
    weight = asked[update.weight.id]
    if len(states) > 1 or (weight is not None and states and states != {weight}):
        groups = ", ".join(f"{id} {_described(domain)}" for id, domain in asked.items())
        raise EmulatorError(
            f"Replicated tensor sharding of the weight {update.weight.id}: {groups}; shard all "
            "optimiser states of a weight between the same replicas (those of the weight, if it is sharded), or none"
        )
    return weight or next(iter(states), None)


def _described(domain: tuple[int, int] | None) -> str:
    return "whole" if domain is None else f"between {domain[1]} replicas"


class _Division:
    """Rewrites one update."""

    def __init__(self, graph: Graph, update: _Update, shards: Shards, replicas: int, divide: Divide) -> None:
        self.graph, self.update, self.shards, self.replicas = graph, update, shards, replicas
        self.attributes = {"shards": shards}
        self.weight_is_shard = divide(update.weight) is not None
        self.before: list[Op] = []

    def run(self, scattered: bool, mean: bool) -> None:
        update, names = self.update, {}
        for state in update.states:
            self.divide(state)
        names[update.gradient] = self.scatter(mean) if scattered else self.take(update.gradient)
        if self.weight_is_shard:
            self.divide(update.weight)
        else:
            names[update.weight.id] = self.take(update.weight.id)
        self.reshape_outputs()
        ops = self.lamb(names) if update.op.attributes.get("norms") else self.elementwise(names)
        place = next(number for number, op in enumerate(self.graph.ops) if op is update.op)
        self.graph.ops[place : place + 1] = [*self.before, *ops]
        if self.weight_is_shard:
            self.gather_before_use()

    def reshape_outputs(self) -> None:
        for id in self.update.op.outputs:
            if self.graph.tensor(id).shape == self.update.weight.shape:
                self.graph.tensors[id] = replace(self.graph.tensor(id), shape=(self.shards.size,))

    def elementwise(self, names: Mapping[str, str]) -> list[Op]:
        """Return the update of a shard, and the op that gathers the whole weight."""
        op = replace(self.update.op, inputs=tuple(names.get(id, id) for id in self.update.op.inputs))
        if self.weight_is_shard:
            return [op]
        gather = self.gather()
        return [replace(op, outputs=(gather.inputs[1], *op.outputs[1:])), gather]

    def lamb(self, names: Mapping[str, str]) -> list[Op]:
        """Return the ops of Lamb: the direction is gathered, because the step needs the norms of whole tensors."""
        op, weight = self.update.op, self.update.weight
        rate, decay, c1, c2, eps, most, scale = op.inputs[5:]
        own, gradient = (names.get(id, id) for id in (op.inputs[0], op.inputs[4]))
        shard = self.new(_DIRECTION + weight.id, weight.id, (self.shards.size,), FLOAT)
        whole = self.new(_GATHERED + shard, weight.id, weight.shape, FLOAT)
        inputs = (own, *op.inputs[1:4], gradient, decay, c1, c2, eps, scale)
        found = Op(LAMB_DIRECTION, inputs, (*op.outputs[1:], shard), op.attributes, phase=StepPhase.UPDATE)
        ops = [found, self.op(GATHER_SHARDS, (shard,), whole)]
        if self.weight_is_shard:
            near = self.new(f"{_GATHERED}{UPDATED}{weight.id}", weight.id, weight.shape)
            ops.append(self.op(GATHER_SHARDS, (weight.id,), near))
            inputs = (weight.id, shard, near, whole)
        else:
            self.graph.tensors[op.outputs[0]] = replace(self.graph.tensor(op.outputs[0]), shape=weight.shape)
            inputs = (weight.id, whole, weight.id, whole)
        return [*ops, Op(LAMB_STEP, (*inputs, rate, most), op.outputs[:1], phase=StepPhase.UPDATE)]

    def divide(self, tensor: Tensor) -> None:
        """Replace a variable by one that holds the replica's shard."""
        self.graph.tensors[tensor.id] = replace(tensor, shape=(self.shards.size,), group=(1, 1), shards=self.shards)

    def new(self, id: str, like: str, shape: tuple[int, ...], dtype: DType | None = None) -> str:
        return self.graph.add(Tensor(id, dtype or self.graph.tensor(like).dtype, shape)).id

    def take(self, id: str) -> str:
        shard = self.new(_SHARD + id, id, (self.shards.size,))
        self.before.append(self.op(TAKE_SHARD, (id, shard_number(self.graph, self.shards, self.replicas)), shard))
        return shard

    def scatter(self, mean: bool) -> str:
        total = self.update.gradient
        shard = self.new(_SHARD + total, total, (self.shards.size,))
        more: dict[str, object] = {OPERATOR: MEAN_OPERATOR} if mean else {}
        size, (_, all_of_them) = self.shards.domain[1], self.graph.tensor(total).group or (1, self.replicas)
        if size < all_of_them:
            more[CROSS_DOMAIN] = (size, all_of_them // size)
        self.before.append(self.op(SCATTER_GRADIENT, (total,), shard, **more))
        return shard

    def gather(self) -> Op:
        weight = self.update.weight
        shard = self.new(UPDATED + _SHARD + weight.id, UPDATED + weight.id, (self.shards.size,))
        self.graph.tensors[UPDATED + weight.id] = replace(self.graph.tensor(UPDATED + weight.id), shape=weight.shape)
        return self.op(GATHER_WEIGHT, (weight.id, shard), UPDATED + weight.id)

    def gather_before_use(self) -> None:
        """Gather a weight once in each pass, and on each IPU, before the first op there that reads it."""
        weight, copies, ops = self.update.weight, dict[tuple[StepPhase, Place], str](), []
        for op in self.graph.ops:
            if weight.id in op.inputs and op.phase is not StepPhase.UPDATE:
                key = (op.phase, op.place)
                if key not in copies:
                    copies[key] = self.new(self.graph.unused(_GATHERED + weight.id), weight.id, weight.shape)
                    gather = self.op(GATHER_SHARDS, (weight.id,), copies[key])
                    ops.append(replace(gather, phase=op.phase, place=op.place))
                op = replace(op, inputs=tuple(copies[key] if id == weight.id else id for id in op.inputs))
            ops.append(op)
        self.graph.ops = ops

    def op(self, type: str, inputs: tuple[str, ...], output: str, **attributes: object) -> Op:
        return Op(type, inputs, (output,), self.attributes | attributes, phase=StepPhase.UPDATE)


def shard_number(graph: Graph, shards: Shards, replicas: int) -> str:
    """Return the id of a constant that differs between replicas: the index of the shard that each one holds."""
    stride, size = shards.domain
    id = f"{_NUMBER}{stride}x{size}"
    if id not in graph.tensors:
        graph.add(
            Tensor(id, INT32, (), Role.CONSTANT, group=(1, 1)), np.arange(replicas, dtype=np.int32) // stride % size
        )
    return id
