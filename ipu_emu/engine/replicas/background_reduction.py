"""Bucket reductions: all-reduces of the parts of a bucket while the caller computes, and sums rounded to FLOAT16."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from gcl import Handle
from ipu_emu.engine.replicas.local_replicas import Replicas
from ipu_emu.ops import Call
from ipu_emu.ops.core.op_definition import call_chain
from ipu_emu.ops.random.stochastic_rounding import round_stochastically
from ipu_emu.program.buckets import Bucket
from ipu_emu.program.early_reductions import BucketPart


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


@dataclass(frozen=True)
class RoundedSum:
    """``nelms`` elements of a bucket from ``start`` on; ``name`` selects its random numbers.

        bucket of a replica   | a | b |     ->   workspace   | a | b |    FLOAT, reduced
                                            <-   each rounded with the random numbers of its tensor

    Replicas have equal sums and draw equal random numbers, so they stay equal, wherever in the bucket a sum is.
    """

    start: int
    nelms: int
    name: str


def float_view(workspace: NDArray[np.uint8], bucket: NDArray[np.float16]) -> NDArray[np.float32]:
    """FLOAT elements in ``workspace`` for all of ``bucket`` [local replicas, elements]."""
    return workspace.reshape(-1)[: 4 * bucket.size].view(np.float32).reshape(bucket.shape)


def rounded_reduction(
    bucket: NDArray[np.float16],
    wide: NDArray[np.float32],
    reduce: Call,
    sums: Sequence[RoundedSum],
    key: Callable[[], tuple[int, ...]],
) -> Call:
    """The call that widens ``bucket``, reduces it in ``wide`` and rounds ``sums`` with the random ``key``."""
    drawn = np.zeros(4, np.uint64)

    def draw() -> None:
        drawn[:] = key()

    return call_chain(partial(np.copyto, wide, bucket), reduce, draw, *_roundings(bucket, wide, sums, drawn))


def _roundings(
    bucket: NDArray[np.float16], wide: NDArray[np.float32], sums: Sequence[RoundedSum], key: NDArray[Any]
) -> Iterator[Call]:
    for half, single in zip(bucket, wide, strict=True):
        for total in sums:
            part = slice(total.start, total.start + total.nelms)
            stream_id = crc32(f"{total.name} over replicas".encode())
            yield partial(round_stochastically, single[part], key, stream_id, half[part].view(np.uint16))
