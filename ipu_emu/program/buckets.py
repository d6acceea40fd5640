"""Bucket: gradients of one element type and one group of replicas, side by side, reduced by one collective."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ipu_emu.graph import DType, Tensor, dtype_named

__all__ = ["Bucket", "buckets_of"]

_PREFIX = "bucket"


@dataclass(frozen=True)
class Bucket:
    """``group`` is (stride, size), None for all replicas; ``number`` counts buckets of one kind."""

    dtype: DType
    group: tuple[int, int] | None = None
    number: int = 0

    @property
    def region(self) -> str:
        """The name of its memory: bucket:FLOAT, bucket:FLOAT:all:1, bucket:FLOAT:2x4:0 for stride 2 and size 4."""
        plain = f"{_PREFIX}:{self.dtype}"
        if self.group is None and not self.number:
            return plain
        group = "all" if self.group is None else f"{self.group[0]}x{self.group[1]}"
        return f"{plain}:{group}:{self.number}"

    @classmethod
    def named(cls, region: str) -> Bucket:
        """The inverse of ``region``."""
        _, dtype, *rest = region.split(":")
        group, number = rest or ("all", "0")
        stride, _, size = group.partition("x")
        return cls(dtype_named(dtype), None if group == "all" else (int(stride), int(size)), int(number))

    @staticmethod
    def is_bucket(region: str) -> bool:
        return region.startswith(_PREFIX + ":")


def buckets_of(gradients: Iterable[Tensor], limit: int | None) -> dict[str, Bucket]:
    """Gradient id to its bucket, in order; a bucket holds at most ``limit`` bytes, but at least one gradient."""
    found: dict[str, Bucket] = {}
    last: dict[tuple[DType, tuple[int, int] | None], tuple[Bucket, int]] = {}
    for tensor in gradients:
        kind = (tensor.dtype, tensor.group)
        bucket, used = last.get(kind, (Bucket(*kind), 0))
        if limit is not None and used and used + tensor.nbytes > limit:
            bucket, used = Bucket(*kind, bucket.number + 1), 0
        last[kind] = bucket, used + tensor.nbytes
        found[tensor.id] = bucket
    return found
