"""ForwardProgram: the forward pass of a training session as a second program, with the trained weights.

It has its own memory. Running statistics, which the forward pass changes, are copied back after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ipu_emu.engine.engine import Engine


class ForwardProgram:
    """Holds the program, which ``make`` creates at its first use."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._engine: Engine | None = None

    @contextmanager
    def with_values_of(self, trained: Engine) -> Iterator[Engine]:
        """Yield the engine of the forward pass with the variables of ``trained``; copy them back afterwards."""
        self._engine = self._engine or self._make()
        self._engine.steps, self._engine.seed = trained.steps, trained.seed
        _copy(trained, self._engine)
        yield self._engine
        _copy(self._engine, trained)

    def close(self) -> None:
        """End the threads of the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _copy(source: Engine, target: Engine) -> None:
    """Copy the variables that both engines have."""
    known = source.executable.plan.placements
    for id, placement in target.executable.plan.placements.items():
        if id in known and placement.tensor.role.is_variable:
            for replica in range(source.replicas.local):
                np.copyto(target.view(id, replica), source.view(id, replica))
