"""Workers: threads that run the same part of a program for several replicas at the same time.

Kernels release the GIL, so replicas of one instance use as many CPUs. Two replicas of a convolutional network on two
CPUs against one after the other, best of 12 rounds: 0.7 times as fast at 1 MFLOP per micro-batch, 1.1 at 13, 1.6 at
52, 1.8 at 832.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ipu_emu.ops import Step

__all__ = ["WORTH_A_THREAD", "Workers"]

#: Floating-point operations of a micro-batch below which handing it to a thread costs more than it saves.
WORTH_A_THREAD = 50_000_000


class Workers:
    """``count`` threads; with one, everything runs in the caller's."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="replica") if count > 1 else None

    def run(self, parts: Sequence[Step]) -> None:
        """Run all ``parts`` and wait for them; the error of the first that failed is raised."""
        if self._pool is None or len(parts) == 1:
            for part in parts:
                part()
            return
        for done in [self._pool.submit(part) for part in parts]:
            done.result()
