"""Gradient: what the halves of a training step hand over to each other, and how micro-batches and replicas add up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Gradient", "Reduction"]


class Reduction(Enum):
    """How gradients of micro-batches and replicas become one."""

    SUM = "Sum"
    MEAN_POST = "Mean, divided at the end"
    MEAN_RUNNING = "Mean, kept as a running mean"


@dataclass(frozen=True)
class Gradient:
    """A weight's gradient: ``part`` is of one micro-batch, ``total`` of a batch, in the bucket of its type.

    A ``scattered`` one is in no bucket: an op of the update reduces it, each replica getting a shard, or nobody has
    to. The sums of a ``rounded`` one are rounded stochastically. The total of a ``remote`` one is off chip, and
    reduced once it has been loaded.
    """

    weight: str
    part: str
    total: str
    scattered: bool = False
    rounded: bool = False
    remote: bool = False
