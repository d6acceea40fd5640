"""Rounded reduction: sums of FLOAT16 over replicas, computed in FLOAT and rounded stochastically to FLOAT16.

    bucket of a replica   | a | b |     ->   workspace   | a | b |    FLOAT, reduced
                                        <-   each rounded with the random numbers of its tensor

Replicas have equal sums and draw equal random numbers, so they stay equal, wherever in the bucket a sum is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops import Call
from ipu_emu.ops.core.call_chain import call_chain
from ipu_emu.ops.random.stochastic_rounding import round_stochastically

__all__ = ["RoundedSum", "float_view", "rounded_reduction"]


@dataclass(frozen=True)
class RoundedSum:
    """``nelms`` elements of a bucket from ``start`` on; ``name`` selects its random numbers."""

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
    for half, full in zip(bucket, wide, strict=True):
        for rounded in sums:
            part = slice(rounded.start, rounded.start + rounded.nelms)
            stream_id = crc32(f"{rounded.name} over replicas".encode())
            yield partial(round_stochastically, full[part], key, stream_id, half[part].view(np.uint16))
