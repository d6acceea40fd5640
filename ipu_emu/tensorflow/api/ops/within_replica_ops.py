"""Within-replica ops: collectives between the shards of a replica, given one tensor for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, math_ops

from ipu_emu.tensorflow.api.scopes import ipu_shard

__all__ = ["all_gather", "all_reduce", "reduce_scatter"]

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "COLLECTIVE_OP_ADD": math_ops.add,
    "COLLECTIVE_OP_MUL": math_ops.multiply,
    "COLLECTIVE_OP_MIN": math_ops.minimum,
    "COLLECTIVE_OP_MAX": math_ops.maximum,
    "COLLECTIVE_OP_LOGICAL_AND": math_ops.logical_and,
    "COLLECTIVE_OP_LOGICAL_OR": math_ops.logical_or,
    "COLLECTIVE_OP_SQUARE_ADD": lambda x, y: x + y * y,
}


def all_gather(input_shards: Sequence[Any], axis: int = 0, name: str | None = None) -> list[Any]:
    """The tensors of all shards one after the other along ``axis``, on each shard."""
    parts = _tensors(input_shards)
    return [_on(shard, lambda: array_ops.concat(parts, axis), name or "all_gather") for shard in range(len(parts))]


def all_reduce(input_shards: Sequence[Any], op: str, name: str | None = None) -> list[Any]:
    """The combination of the tensors of all shards, on each shard."""
    tensors = _tensors(input_shards)
    return [_on(shard, lambda: _combined(tensors, op), name or "all_reduce") for shard in range(len(tensors))]


def reduce_scatter(input_shards: Sequence[Any], op: str, name: str | None = None) -> list[Any]:
    """A part of the combination of all flattened tensors on each shard; the last part is padded with zeros."""
    tensors = [array_ops.reshape(tensor, [-1]) for tensor in _tensors(input_shards)]
    size = -(-int(tensors[0].shape[0]) // len(tensors))
    more = size * len(tensors) - int(tensors[0].shape[0])
    parts = [array_ops.pad(tensor, [[0, more]]) for tensor in tensors] if more else tensors

    def part(shard: int) -> Any:
        return _combined([tensor[shard * size : (shard + 1) * size] for tensor in parts], op)

    return [_on(shard, partial(part, shard), name or "reduce_scatter") for shard in range(len(tensors))]


def _tensors(shards: Sequence[Any]) -> list[Any]:
    tensors = [ops.convert_to_tensor(shard) for shard in shards]
    shapes = [str(tensor.shape) for tensor in tensors]
    if len(set(shapes)) != 1:
        raise ValueError(f"give one tensor for each shard, all of one shape, not {shapes}")
    return tensors


def _combined(tensors: Sequence[Any], op: str) -> Any:
    if op not in _COMBINE:
        raise ValueError(f"'{op}' is not an operator; use one of {', '.join(_COMBINE)}")
    first = tensors[0] * tensors[0] if op == "COLLECTIVE_OP_SQUARE_ADD" else tensors[0]
    return reduce(_COMBINE[op], tensors[1:], first)


def _on(shard: int, make: Callable[[], Any], name: str) -> Any:
    with ipu_shard(shard), ops.name_scope(name):
        return make()
