"""Traced weight copies: from the IPUs to the host, each a span in the trace of a process that records one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine import Engine
from ipu_emu.program.weight_copies import WeightCopy
from popdist_py.trace import Category


class TracedWeightCopies:
    """Context manager of the copies of one phase, which are complete when the block ends."""

    def __init__(self, engine: Engine, what: str, category: Category) -> None:
        self._engine, self._record, self._what, self._category = engine, engine.record, what, category

    def read(self, id: str, replica: int = 0) -> NDArray[Any]:
        """Return a copy of a tensor of one local replica."""
        with self.copying(id, replica):
            return self._engine.read(id, replica)

    def copy(self, id: str, replica: int, target: NDArray[Any]) -> None:
        """Copy a tensor of one local replica to an array of its shape and type."""
        with self.copying(id, replica):
            np.copyto(target, self._engine.view(id, replica))

    def copying(self, id: str, replica: int = 0) -> AbstractContextManager[None]:
        """Return the context manager that records the copy of a tensor of one local replica."""
        if self._record is None:
            return nullcontext()
        copy = WeightCopy(id, replica, self._engine.view(id, replica).nbytes)
        return self._record.copying(self._what, self._category, copy)

    def __enter__(self) -> TracedWeightCopies:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None and self._record is not None:
            self._record.copied(self._what)
