"""Instructions whose effect depends on the micro-batch: sums and means over micro-batches, keys of random numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.graph import Op
from ipu_emu.program.instructions.instruction import Leaf


@dataclass(frozen=True)
class Accumulation(Leaf):
    """Run ``first`` in the first micro-batch and ``others`` in the others."""

    first: Op
    others: Op

    @property
    def ops(self) -> tuple[Op, ...]:
        return self.first, self.others

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.first.outputs[0]} += {self.first.inputs[1]}"


class AccumulateGradient(Accumulation):
    """Sum over the micro-batches of a batch."""


class AccumulateAnchor(Accumulation):
    """Sum over the micro-batches of a step."""


@dataclass(frozen=True)
class CountMicroBatch(Leaf):
    """Set the weights of a running mean: after f micro-batches, ``keep`` = f/(f+1) and ``take`` = 1/(f+1)."""

    keep: str
    take: str

    @property
    def writes(self) -> tuple[str, ...]:
        return self.keep, self.take

    def __str__(self) -> str:
        return f"CountMicroBatch {self.keep}, {self.take}"


@dataclass(frozen=True)
class DrawKey(Leaf):
    """Set the key of random numbers: [seed, global replica (0 if ``shared``), step, micro-batch of the step]."""

    tensor: str
    shared: bool = False

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tensor,)

    def __str__(self) -> str:
        return f"DrawKey {self.tensor}"
