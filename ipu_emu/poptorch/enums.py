"""Enums: PopTorch's enumerations, with its names and numbers."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = [
    "AutoStage", "CommGroupType", "Compiler", "ConnectionType", "DataLoaderMode", "HalfFloatCastingBehavior",
    "Liveness", "MatMulSerializationMode", "MeanReductionStrategy", "MultiConvPlanType", "OutputMode", "OverlapMode",
    "ReductionType", "SharingStrategy", "SyncPattern", "VariableRetrievalMode",
]  # fmt: skip


class DataLoaderMode(IntEnum):
    """How a DataLoader loads: in the program, in a separate process, or there with rebatching."""

    Sync = 0
    Async = 1
    AsyncRebatched = 2


class SharingStrategy(IntEnum):
    """How a data set is passed to the loading process."""

    SharedMemory = 0
    FileSystem = 1
    Fork = 2
    ForkServer = 3


class OutputMode(IntEnum):
    """Which micro-batches' outputs the host receives."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3
    Default = 4


class ConnectionType(IntEnum):
    """When a device is attached."""

    Always = 0
    OnDemand = 1
    Never = 2


class HalfFloatCastingBehavior(IntEnum):
    """Deprecated: types are promoted as in PyTorch."""

    FloatDowncastToHalf = 0
    HalfUpcastToFloat = 1
    Default = 2


class ReductionType(IntEnum):
    """How gradients of micro-batches and replicas are combined."""

    Sum = 0
    Mean = 1
    NoReduction = 2


class MeanReductionStrategy(IntEnum):
    """When a mean of gradients is divided."""

    Running = 0
    Post = 1
    PostAndLoss = 2


class SyncPattern(IntEnum):
    """Which IPUs synchronise with each other."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class MatMulSerializationMode(Enum):
    """The axis along which a matrix product is divided; it changes no number."""

    InputChannels = "input_channels"
    ReducingDim = "reducing_dim"
    OutputChannels = "output_channels"
    Disabled = "none"


class Liveness(IntEnum):
    """When tensors leave the IPU in phased execution."""

    AlwaysLive = 0
    OffChipAfterFwd = 1
    OffChipAfterFwdNoOverlap = 2
    OffChipAfterEachPhase = 3


class OverlapMode(Enum):
    """Which loop overlaps host I/O with compute."""

    NoOverlap = "no_overlap"
    OverlapAccumulationLoop = "overlap_accumulation_loop"
    OverlapDeviceIterationLoop = "overlap_device_iteration_loop"


class AutoStage(IntEnum):
    """How blocks become stages."""

    SameAsIpu = 0
    AutoIncrement = 1


class MultiConvPlanType(IntEnum):
    """Whether the convolutions of a MultiConv run side by side; it changes no number."""

    Parallel = 0
    Serial = 1


class CommGroupType(IntEnum):
    """Which replicas form a group."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    NoGrouping = 3


class VariableRetrievalMode(IntEnum):
    """Which replicas' values of a variable the host receives."""

    OnePerGroup = 0
    AllReplicas = 2


class Compiler(IntEnum):
    """Deprecated: there is one compiler."""

    PopART = 1
    MLIR = 3
