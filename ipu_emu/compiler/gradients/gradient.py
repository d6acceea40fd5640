"""Gradient: a gradient that replicas reduce between the backward pass and the weight updates."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Gradient", "GradientReduction"]


class GradientReduction(Enum):
    """How the gradients of micro-batches and replicas are combined."""

    SUM = "Sum"
    MEAN_POST = "Mean, divided at the end"
    MEAN_RUNNING = "Mean, kept as a running mean"


@dataclass(frozen=True)
class Gradient:
    """The gradient of a weight: ``part`` for one micro-batch, ``total`` for all micro-batches of a batch.

    Totals are reduced in buckets, one for each element type. A ``scattered`` one is in no bucket: an op of the update
    reduces it and gives each replica a shard, or it is not reduced at all. A ``rounded`` one is rounded
    stochastically. The total of a ``remote`` one is in Streaming Memory, and reduced after it has been loaded. A
    total that ``joins`` another is added to it after the last micro-batch.
    """

    weight: str
    part: str
    total: str
    scattered: bool = False
    rounded: bool = False
    remote: bool = False
    joins: str = ""
