"""Workers: threads that run the same part of a program for several replicas at the same time.

Kernels release the GIL, so replicas of one instance use as many CPUs. Speed of two replicas of a convolutional
network on two CPUs, side by side over one after the other (median of 40 rounds on a shared machine, and best):

    MFLOP per micro-batch    2      13     52     208    832
    median                   0.66   0.83   0.97   1.5    1.6
    best                     0.78   0.91   1.1    1.7    1.9
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from ipu_emu.ops import Step

__all__ = ["WORTH_A_THREAD", "Workers"]

#: Floating-point operations of a micro-batch below which handing it to a thread costs more than it saves.
WORTH_A_THREAD = 150_000_000


class Workers:
    """``count`` threads; with one, everything runs in the caller's."""

    def __init__(self, count: int) -> None:
        self.count = count
        # numpy keeps its error state per thread: what the caller has set does not reach these.
        quiet = partial(np.seterr, all="ignore")
        self._pool = ThreadPoolExecutor(count, "replica", initializer=quiet) if count > 1 else None

    def run(self, parts: Sequence[Step]) -> None:
        """Run all ``parts`` and wait for them; the error of the first that failed is raised."""
        if self._pool is None or len(parts) == 1:
            for part in parts:
                part()
            return
        for done in [self._pool.submit(part) for part in parts]:
            done.result()
