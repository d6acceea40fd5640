"""Anchors: which tensors go back to the host, when, and in which shape.

    type     prefix of the shape    value
    Final    [R]                    last micro-batch of the step
    Sum      [R]                    sum over all micro-batches of the step
    All      [bps, A, R]            every micro-batch
    EveryN   [bps // N, A, R]       every N-th micro-batch

Every 1 is removed from the prefix. Source: PopART 3.4, section "Step data and anchors".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ipu_emu.graph import Tensor
from ipu_emu.program.instructions import Overlap

__all__ = ["Anchor", "Return", "StepShape"]


class Return(Enum):
    """What of a tensor is returned."""

    FINAL = "Final"
    EVERY_N = "EveryN"
    ALL = "All"
    SUM = "Sum"


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

    def divisor(self, anchor: Anchor) -> int:
        """By how much an anchor has fewer elements than all micro-batches together."""
        everything = self.batches * self.accumulation
        return {
            Return.FINAL: everything,
            Return.SUM: everything,
            Return.ALL: 1,
            Return.EVERY_N: anchor.period,
        }[anchor.returns]

    def shape(self, anchor: Anchor, tensor: Tensor) -> tuple[int, ...]:
        """Shape of the array that holds ``anchor`` of one step."""
        prefix = {
            Return.FINAL: (self.replicas,),
            Return.SUM: (self.replicas,),
            Return.ALL: (self.batches, self.accumulation, self.replicas),
            Return.EVERY_N: (self.batches // anchor.period, self.accumulation, self.replicas),
        }[anchor.returns]
        return (*(size for size in prefix if size != 1), *tensor.shape)
