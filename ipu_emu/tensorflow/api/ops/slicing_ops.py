"""Slicing ops: sequences of different lengths copied between tensors."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import dtypes, ops
from tensorflow.python.ops import array_ops, math_ops

__all__ = ["sequence_slice"]


def sequence_slice(
    dst: Any, src: Any, num_elems: Any, src_offsets: Any, dst_offsets: Any, zero_unused: bool, name: str | None = None
) -> Any:
    """Return ``dst`` with rows src_offsets[i] .. src_offsets[i] + num_elems[i] of ``src`` from dst_offsets[i] on.

    Other rows of ``dst`` are unchanged, or 0 with ``zero_unused``.
    """
    with ops.name_scope(name or "sequence_slice"):
        dst, src = ops.convert_to_tensor(dst), ops.convert_to_tensor(src)
        counts, sources, places = (
            math_ops.cast(numbers, dtypes.int32)[:, None] for numbers in (num_elems, src_offsets, dst_offsets)
        )
        rows = math_ops.range(int(dst.shape[0]))[None, :]
        covers = math_ops.logical_and(rows >= places, rows < places + counts)
        number = math_ops.reduce_max(array_ops.where_v2(covers, rows - places + sources, -1), axis=0)
        taken = array_ops.gather(src, math_ops.maximum(number, 0))
        others = array_ops.zeros_like(dst) if zero_unused else dst
        covered = array_ops.reshape(number >= 0, [-1] + [1] * (dst.shape.rank - 1))
        return array_ops.where_v2(covered, taken, others)
