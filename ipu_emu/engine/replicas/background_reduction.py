"""BackgroundReduction: the all-reduces of the parts of a bucket, which run while the caller computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from gcl import Handle
from ipu_emu.engine.replicas.local_replicas import Replicas
from ipu_emu.program.buckets import Bucket
from ipu_emu.program.early_reductions import BucketPart

__all__ = ["BackgroundReduction"]


class BackgroundReduction:
    """Reduces ``parts`` of ``bucket`` [local replicas, elements] in place; all instances begin them in one order."""

    def __init__(self, replicas: Replicas, bucket: NDArray[Any], parts: Sequence[BucketPart]) -> None:
        self._begins: dict[BucketPart, Callable[[], Handle[Any]]] = {
            part: replicas.beginning(Bucket.named(part.bucket), bucket[:, part.start : part.stop], part.operator)
            for part in parts
        }
        self._begun: dict[BucketPart, Handle[Any]] = {}

    def begin(self, part: BucketPart) -> None:
        """Begin to reduce a part, whose memory must not be used until ``wait``."""
        self._begun[part] = self._begins[part]()

    def wait(self) -> None:
        """Begin the parts that have not begun, and wait for all."""
        for part in self._begins:
            if part not in self._begun:
                self.begin(part)
        for part in self._begins:
            self._begun.pop(part).wait()
