"""Counts: where a step is, for what depends on it: random keys, first micro-batches, stores that are seldom due."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.program.instructions import Counter

__all__ = ["Counts"]


@dataclass
class Counts:
    """Numbers of the current step, batch and micro-batch, and the seed of the session.

    Every IPU of every replica has its own, because in a pipeline each is at another micro-batch.
    """

    batch: int = 0
    micro_batch: int = 0
    step: int = 0
    seed: int = 0

    def set(self, counter: Counter, turn: int) -> None:
        """Begin turn ``turn`` of a loop."""
        if counter is Counter.BATCH:
            self.batch = turn
        else:
            self.micro_batch = turn

    def follow(self, other: Counts) -> None:
        """Be where ``other`` is."""
        self.batch, self.micro_batch, self.step, self.seed = other.batch, other.micro_batch, other.step, other.seed
