"""Math ops: sums over a known number of segments."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import math_ops

__all__ = ["segment_sum"]


def segment_sum(data: Any, segment_ids: Any, num_segments: int, name: str | None = None) -> Any:
    """The sums of the rows of ``data`` with equal ``segment_ids``, which ascend, for ``num_segments`` segments."""
    return math_ops.unsorted_segment_sum(data, segment_ids, num_segments, name=name)
