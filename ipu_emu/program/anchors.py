"""Anchor: a tensor that is returned to the host: when, and in which shape.

    type     prefix of the shape    value
    Final    [R]                    last micro-batch of the step
    Sum      [R]                    sum over all micro-batches of the step
    All      [bps, A, R]            every micro-batch
    EveryN   [bps // N, A, R]       every N-th micro-batch
    Update   [bps, R]               after every weight update

Sizes of 1 are removed from the prefix. Source: PopART 3.4, section "Step data and anchors".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ipu_emu.graph import Tensor
from ipu_emu.program.instructions import Overlap


class Return(Enum):
    """Which values of a tensor are returned."""

    FINAL = "Final"
    EVERY_N = "EveryN"
    ALL = "All"
    SUM = "Sum"
    UPDATE = "Update"


@dataclass(frozen=True)
class Anchor:
    """A tensor to return; ``period`` is the N of EveryN."""

    tensor: str
    returns: Return
    period: int = 1
    overlap: Overlap = Overlap.NONE


@dataclass(frozen=True)
class StepShape:
    """Batches per step, accumulation factor and local replicas."""

    batches: int
    accumulation: int
    replicas: int

    @property
    def micro_batches(self) -> int:
        """The micro-batches that run through a pipeline in a row: of an update, else of a step."""
        return self.accumulation if self.accumulation > 1 else self.batches

    def divisor(self, anchor: Anchor) -> int:
        """The elements of the tensor in all micro-batches, over those that the anchor returns."""
        everything = self.batches * self.accumulation
        return {
            Return.FINAL: everything,
            Return.SUM: everything,
            Return.ALL: 1,
            Return.EVERY_N: anchor.period,
            Return.UPDATE: self.accumulation,
        }[anchor.returns]

    def shape(self, anchor: Anchor, tensor: Tensor) -> tuple[int, ...]:
        """The shape of the array that holds ``anchor`` after one step."""
        prefix = {
            Return.FINAL: (self.replicas,),
            Return.SUM: (self.replicas,),
            Return.ALL: (self.batches, self.accumulation, self.replicas),
            Return.EVERY_N: (self.batches // anchor.period, self.accumulation, self.replicas),
            Return.UPDATE: (self.batches, self.replicas),
        }[anchor.returns]
        return (*(size for size in prefix if size != 1), *tensor.shape)
