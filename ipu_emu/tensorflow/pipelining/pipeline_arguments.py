"""Pipeline arguments: the stages of a pipeline call, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PipelineStageOptions", "StageFunction"]


@dataclass(frozen=True)
class StageFunction:
    """A computational stage: tensors that it returns, variables that it uses, tensors of the enclosing scope that it
    captures, and the shards on which it places ops (``ipu_shard``).
    """

    name: str
    outputs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    shards: tuple[int, ...] = ()


@dataclass(frozen=True)
class PipelineStageOptions:
    """Options for Poplar's libraries; none changes a result."""

    convolution_options: Mapping[str, str] = field(default_factory=dict)
    matmul_options: Mapping[str, str] = field(default_factory=dict)
    slice_options: Mapping[str, str] = field(default_factory=dict)
