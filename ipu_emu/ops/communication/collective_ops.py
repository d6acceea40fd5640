"""Collective ops: all-reduce and reduce-scatter between all replicas or groups of them.

Source: PopART 3.4. The operator is the attribute ``__collectiveOperator`` (a number, default Add), the group
``__collectiveCommGroup`` = [type, size] (default all). A shard of a reduce-scatter is one-dimensional, of
ceil(elements / group size) elements; its index is the index in the group, and the end is padded with zeros.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from gcl import CommGroup, CommGroupType, Group, Operator
from ipu_emu.errors import EmulatorError
from ipu_emu.graph.op import GRAPHCORE, Op
from ipu_emu.ops.core import BoundOp, Call, Node, OpDef, OutputTypes, copy_cost
from ipu_emu.ops.core.shape_rules import same

OPERATOR, GROUP = "__collectiveOperator", "__collectiveCommGroup"
#: The attribute with the number of replicas, which a session adds: groups and shard shapes depend on it.
REPLICA_COUNT = "__replicas"

#: gcl's operators, indexed by PopART's numbers.
_OPERATORS = tuple(Operator)
_GROUPS = (CommGroupType.ALL, CommGroupType.CONSECUTIVE, CommGroupType.ORTHOGONAL, CommGroupType.NONE)
REDUCE_SCATTER = "ReplicatedReduceScatter"
_ALL_REDUCE = "ReplicatedAllReduce"
#: The collectives that a model may contain.
MODEL_COLLECTIVES = (REDUCE_SCATTER, _ALL_REDUCE)
#: The mean over replicas as part of a model; its gradient is the mean of the gradients of all replicas.
MEAN = "ReplicatedMean"
MEAN_OPERATOR = _OPERATORS.index(Operator.MEAN)
#: Collectives between the replicas that share an update or a weight (see ``shard_ops``).
SCATTER_GRADIENT, GATHER_WEIGHT, GATHER_SHARDS = "ReduceScatterGradient", "AllGatherWeight", "AllGatherShards"
#: Collectives whose results are equal on all replicas of a group.
REDUCTIONS = (_ALL_REDUCE, MEAN)
_COMPILER_COLLECTIVES = (MEAN, SCATTER_GRADIENT, GATHER_WEIGHT, GATHER_SHARDS)


def is_replica_collective(op: Op) -> bool:
    """Whether the engine runs ``op`` as a collective."""
    return op.type in _COMPILER_COLLECTIVES or (op.domain == GRAPHCORE and op.type in MODEL_COLLECTIVES)


def operator_of(op: Op) -> str:
    """gcl's name of the operator."""
    return str(_OPERATORS[int(op.attributes.get(OPERATOR, 0))])


def group_of(op: Op, replicas: int) -> tuple[int, int] | None:
    """(stride, size) of the group of replicas, None for all replicas."""
    type, size = (int(value) for value in op.attributes.get(GROUP, (0, 0)))
    if _GROUPS[type] is CommGroupType.ALL:
        return None
    if op.type == MEAN and replicas % size:
        raise EmulatorError(
            f"The number of replicas ({replicas}) must be divisible by distributed_batch_norm_replica_group_size "
            f"({size}); use a size that divides it"
        )
    group = Group.of_comm_group(replicas, CommGroup(_GROUPS[type], size))
    return group.stride, group.size


def _checked(node: Node) -> None:
    number, (type, _) = int(node.attribute(OPERATOR, 0)), node.attribute(GROUP, (0, 0))
    if not 0 <= number < len(_OPERATORS):
        raise node.fail(f"there is no collective operator {number}; use 0 to {len(_OPERATORS) - 1}")
    if not 0 <= type < len(_GROUPS):
        raise node.fail(f"there is no communication group type {type}; use 0 to {len(_GROUPS) - 1}")
    Operator.parse(_OPERATORS[number], node.input(0).dtype.numpy)


def _group(node: Node) -> tuple[int, int] | None:
    replicas = int(node.attribute(REPLICA_COUNT, 1))
    return group_of(node.op, replicas) if replicas > 1 else None


def _same(node: Node) -> OutputTypes:
    _checked(node)
    _group(node)
    return same(node)


def _shard(node: Node) -> OutputTypes:
    _checked(node)
    tensor, group, replicas = node.input(0), _group(node), int(node.attribute(REPLICA_COUNT, 1))
    return [(tensor.dtype, (-(-tensor.nelms // (group[1] if group else replicas)),))]


def _alone(bound: BoundOp) -> Call:
    x, y = bound.input(0), bound.outputs[0]
    return partial(np.copyto, y, x.reshape(y.shape))


OPS = [
    OpDef(_ALL_REDUCE, (1, 1), _same, _alone, copy_cost, domain=GRAPHCORE),
    OpDef(MEAN, (1, 1), _same, _alone, copy_cost, lambda d: d.g.op(MEAN, **d.node.op.attributes)),
    OpDef(REDUCE_SCATTER, (1, 1), _shard, _alone, copy_cost, domain=GRAPHCORE),
]
