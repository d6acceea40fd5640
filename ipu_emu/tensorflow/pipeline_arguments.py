"""Parts of a pipeline call: what it sees of its stages, and its queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["InfeedQueue", "OutfeedMode", "OutfeedQueue", "PipelineStageOptions", "StageFunction"]


@dataclass(frozen=True)
class StageFunction:
    """A computational stage: the tensors that it returns, the variables that it uses, tensors that it takes from
    outside without having been given them, and the shards on which it puts ops (``ipu_shard``).
    """

    name: str
    outputs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    shards: tuple[int, ...] = ()


class OutfeedMode(Enum):
    """What an outfeed keeps for the host."""

    ALL = "all"
    LAST = "last"


@dataclass(frozen=True)
class InfeedQueue:
    """Gives stage 0 an element for each mini-batch."""


@dataclass(frozen=True)
class OutfeedQueue:
    """Takes what the last stage returns."""

    mode: OutfeedMode = OutfeedMode.ALL


@dataclass(frozen=True)
class PipelineStageOptions:
    """Options for Poplar's libraries; none changes a result."""

    convolution_options: Mapping[str, str] = field(default_factory=dict)
    matmul_options: Mapping[str, str] = field(default_factory=dict)
    slice_options: Mapping[str, str] = field(default_factory=dict)
