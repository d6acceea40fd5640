"""Option enumerations: values of session options that have an effect, with PopART's names and numbers."""

from __future__ import annotations

from enum import Enum, EnumMeta
from typing import TYPE_CHECKING, Any

from popdist_py.messages.suggestion import did_you_mean


class _Names(EnumMeta):
    """Metaclass of enumerations: the error for a misspelt name suggests the right one."""

    if not TYPE_CHECKING:  # a type checker would accept any name

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            if name in cls.__members__:
                return cls.__members__[name]
            names = ", ".join(cls.__members__)
            hint = did_you_mean(name, cls.__members__)
            raise AttributeError(f"{cls.__name__} has no member {name!r}; it has {names}{hint}")


class Numbered(Enum, metaclass=_Names):
    """An enumeration whose members equal their numbers in C++."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


class ReductionType(Numbered):
    """How values are reduced: sum, mean, or not at all."""

    Mean = 0
    NoReduction = 1
    Sum = 2


class MeanReductionStrategy(Numbered):
    """When a mean over micro-batches and replicas is divided: once at the end, or as a running mean."""

    Running = 0
    Post = 1


class VirtualGraphMode(Numbered):
    """How ops are assigned to the IPUs of a replica."""

    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class RecomputationType(Numbered):
    """Which parts of the forward pass are recomputed for the backward pass."""

    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    RecomputeAll = 3
    Pipeline = 4


class SyntheticDataMode(Numbered):
    """The data with which a session computes instead of host data."""

    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class PatternsLevel(Numbered):
    """Which of PopART's graph patterns are enabled by default."""

    All = 0
    Default = 1
    Minimal = 2
    NoPatterns = 3


class TensorStorage(Numbered):
    """Where a tensor is kept: in the memory of its IPU, or in Streaming Memory."""

    OnChip = 0
    OffChip = 1


class ReplicatedTensorSharding(Numbered):
    """Whether replicas share a tensor, each holding one shard."""

    Off = 0
    On = 1


class TileSet(Numbered):
    """Which tiles load or store a tensor: those that compute, or I/O tiles."""

    Compute = 0
    IO = 1


class CommGroupType(Numbered):
    """How replicas are divided into groups."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    Ungrouped = 3


class Instrumentation(Numbered):
    """Which programs a hardware cycle counter covers."""

    Outer = 0
    Inner = 1
