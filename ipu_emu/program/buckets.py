"""Bucket: gradients of one type, one group of replicas and one place, adjacent in memory, reduced as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from ipu_emu.graph import DType, Op, Place, Tensor, dtype_named
from ipu_emu.ops.communication.shard_ops import shards_of

_PREFIX = "bucket"


@dataclass(frozen=True)
class Bucket:
    """``group`` is (stride, size), None for all replicas; ``number`` counts buckets of one kind on an ``ipu``."""

    dtype: DType
    group: tuple[int, int] | None = None
    number: int = 0
    ipu: int = 0

    @property
    def region(self) -> str:
        """The name of its memory: bucket:FLOAT, bucket:FLOAT:all:1, bucket:FLOAT:2x4:0 for stride 2 and size 4.

        The number of an IPU other than the first comes last: bucket:FLOAT:all:0:1.
        """
        plain = f"{_PREFIX}:{self.dtype}"
        if self.group is None and not self.number and not self.ipu:
            return plain
        group = "all" if self.group is None else f"{self.group[0]}x{self.group[1]}"
        return f"{plain}:{group}:{self.number}{f':{self.ipu}' if self.ipu else ''}"

    @property
    def workspace(self) -> Bucket:
        """The region that the collectives of its group on its IPU share in turn."""
        return Bucket(dtype_named("UINT8"), self.group, ipu=self.ipu)

    @classmethod
    def named(cls, region: str) -> Bucket:
        """The inverse of ``region``."""
        _, dtype, *rest = region.split(":")
        group, number, ipu = (*rest, *("all", "0", "0")[len(rest) :])
        stride, _, size = group.partition("x")
        return cls(dtype_named(dtype), None if group == "all" else (int(stride), int(size)), int(number), int(ipu))

    @staticmethod
    def is_bucket(region: str) -> bool:
        return region.startswith(_PREFIX + ":")


def workspace_of(op: Op) -> Bucket:
    """The region that collectives of sharded tensors use, alone or merged."""
    return Bucket(dtype_named("UINT8"), shards_of(op).domain, ipu=op.place.ipu)


def buckets_of(gradients: Iterable[tuple[Tensor, Place]], limit: int | None) -> dict[str, Bucket]:
    """Map each gradient id to its bucket, in order; a bucket holds at most ``limit`` bytes, or one larger gradient.

    The place of a gradient is its IPU, and the stage in which it is complete.
    """
    buckets: dict[str, Bucket] = {}
    last: dict[tuple[DType, tuple[int, int] | None, Place], tuple[Bucket, int]] = {}
    numbers: dict[tuple[DType, tuple[int, int] | None, int], Iterator[int]] = {}
    for tensor, place in gradients:
        group = (tensor.dtype, tensor.group, place.ipu)
        bucket, used = last.get((tensor.dtype, tensor.group, place), (None, 0))
        if bucket is None or (limit is not None and used and used + tensor.nbytes > limit):
            number = next(numbers.setdefault(group, count()))
            bucket, used = Bucket(tensor.dtype, tensor.group, number, place.ipu), 0
        last[tensor.dtype, tensor.group, place] = bucket, used + tensor.nbytes
        buckets[tensor.id] = bucket
    return buckets
