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
    given = _tensors(input_shards)
    return [_on(shard, lambda: array_ops.concat(given, axis), name or "all_gather") for shard in range(len(given))]


def all_reduce(input_shards: Sequence[Any], op: str, name: str | None = None) -> list[Any]:
    """The combination of the tensors of all shards, on each shard."""
    given = _tensors(input_shards)
    return [_on(shard, lambda: _combined(given, op), name or "all_reduce") for shard in range(len(given))]


def reduce_scatter(input_shards: Sequence[Any], op: str, name: str | None = None) -> list[Any]:
    """A part of the combination of all flattened tensors on each shard; the last part is padded with zeros."""
    given = [array_ops.reshape(one, [-1]) for one in _tensors(input_shards)]
    size = -(-int(given[0].shape[0]) // len(given))
    more = size * len(given) - int(given[0].shape[0])
    parts = [array_ops.pad(one, [[0, more]]) for one in given] if more else given

    def part(shard: int) -> Any:
        return _combined([one[shard * size : (shard + 1) * size] for one in parts], op)

    return [_on(shard, partial(part, shard), name or "reduce_scatter") for shard in range(len(given))]


def _tensors(shards: Sequence[Any]) -> list[Any]:
    given = [ops.convert_to_tensor(one) for one in shards]
    if not given or len({tuple(one.shape.as_list()) for one in given}) > 1:
        raise ValueError(f"give one tensor for each shard, all of one shape, not {[str(one.shape) for one in given]}")
    return given


def _combined(given: Sequence[Any], op: str) -> Any:
    if op not in _COMBINE:
        raise ValueError(f"'{op}' is not an operator; use one of {', '.join(_COMBINE)}")
    first = given[0] * given[0] if op == "COLLECTIVE_OP_SQUARE_ADD" else given[0]
    return reduce(_COMBINE[op], given[1:], first)


def _on(shard: int, make: Callable[[], Any], name: str) -> Any:
    with ipu_shard(shard), ops.name_scope(name):
        return make()
