"""Replicas: the local replicas of this instance among all replicas, and the collectives between them.

The only file that speaks to gcl.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from numpy.typing import NDArray

import gcl
from ipu_emu.graph import DType
from ipu_emu.ops import Step

__all__ = ["Replicas"]


class Replicas:
    """``local`` replicas of this instance, the first of which has the global index ``offset``."""

    def __init__(self, *, local: int, offset: int, total: int, communicator: gcl.Communicator | None = None) -> None:
        self.local = local
        self.offset = offset
        self.total = total
        self._communicator = communicator

    @property
    def communicator(self) -> gcl.Communicator:
        """What joins all replicas; made at the first use, for which every instance must be there."""
        if self._communicator is None:
            self._communicator = gcl.connect(
                local_replicas=self.local, global_offset=self.offset, global_replicas=self.total
            )
        return self._communicator

    def bucket(self, dtype: DType, nelms: int) -> NDArray[Any]:
        """Zeroed memory [local replicas, nelms] that a collective reduces where it lies."""
        return self.communicator.empty((nelms,), dtype.numpy)

    def all_reduce(self, bucket: NDArray[Any], operator: str) -> Step:
        """The prepared call that combines ``bucket`` over all replicas in place."""
        return partial(self.communicator.all_reduce, bucket, operator, out=bucket)

    def close(self) -> None:
        """Leave the collectives, if they were ever joined."""
        if self._communicator is not None:
            self._communicator.close()
            self._communicator = None
