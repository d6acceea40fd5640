"""StepCounters: the position in a step, on which random keys, sums over micro-batches and periodic stores depend."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.program.instructions import Counter


@dataclass
class StepCounters:
    """Indices of the current step, batch and micro-batch, and the seed of the session.

    Every IPU of every replica has its own counters, because in a pipeline each works on another micro-batch.
    """

    batch: int = 0
    micro_batch: int = 0
    step: int = 0
    seed: int = 0

    def set(self, counter: Counter, index: int) -> None:
        """Begin iteration ``index`` of a loop."""
        if counter is Counter.BATCH:
            self.batch = index
        else:
            self.micro_batch = index

    def follow(self, other: StepCounters) -> None:
        """Copy the position of ``other``."""
        self.batch, self.micro_batch, self.step, self.seed = other.batch, other.micro_batch, other.step, other.seed
