"""The enumerations of PopART, with its names and numbers; those that only tune are in tuning_enums.py."""

from __future__ import annotations

from enum import Enum

__all__ = [
    "AdamMode",
    "AdaptiveMode",
    "AnchorReturnTypeId",
    "CollectiveOperator",
    "CommGroupType",
    "DataType",
    "DeviceConnectionType",
    "DeviceSelectionCriterion",
    "DeviceType",
    "ExchangeStrategy",
    "InitType",
    "Instrumentation",
    "IrSerializationFormat",
    "MeanReductionStrategy",
    "Numbered",
    "PatternsLevel",
    "RecomputationType",
    "RecomputeType",
    "ReductionType",
    "ReplicatedStreamMode",
    "ReplicatedTensorSharding",
    "SGDAccumulatorAndMomentum",
    "SyncPattern",
    "SyntheticDataMode",
    "TensorStorage",
    "TileSet",
    "VariableRetrievalMode",
    "VirtualGraphMode",
    "WeightDecayMode",
]


class Numbered(Enum):
    """An enumeration whose members count as the numbers that they have in C++."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


class ReductionType(Numbered):
    Mean = 0
    NoReduction = 1
    Sum = 2


class MeanReductionStrategy(Numbered):
    Running = 0
    Post = 1


class VirtualGraphMode(Numbered):
    Off = 0
    Manual = 1
    Auto = 2
    ExecutionPhases = 3


class RecomputationType(Numbered):
    NoRecompute = 0
    Standard = 1
    NormOnly = 2
    RecomputeAll = 3
    Pipeline = 4


class RecomputeType(Numbered):
    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class SyntheticDataMode(Numbered):
    Off = 0
    Zeros = 1
    RandomNormal = 2
    RandomUniform = 3


class PatternsLevel(Numbered):
    All = 0
    Default = 1
    Minimal = 2
    NoPatterns = 3


class TensorStorage(Numbered):
    OnChip = 0
    OffChip = 1


class ReplicatedTensorSharding(Numbered):
    Off = 0
    On = 1


class TileSet(Numbered):
    Compute = 0
    IO = 1


class ExchangeStrategy(Numbered):
    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class ReplicatedStreamMode(Numbered):
    Replicate = 0
    Broadcast = 1


class AnchorReturnTypeId(Numbered):
    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class CommGroupType(Numbered):
    All = 0
    Consecutive = 1
    Orthogonal = 2
    Ungrouped = 3


class VariableRetrievalMode(Numbered):
    OnePerGroup = 0
    AllReduceReplicas = 1
    AllReplicas = 2


class CollectiveOperator(Numbered):
    Add = 0
    Mean = 1
    Mul = 2
    Min = 3
    Max = 4
    LogicalAnd = 5
    LogicalOr = 6
    SquareAdd = 7
    Local = 8


class WeightDecayMode(Numbered):
    Decay = 0
    L2Regularization = 1


class SGDAccumulatorAndMomentum(Numbered):
    Combined = 0
    Separate = 1


class AdamMode(Numbered):
    Adam = 0
    AdamNoBias = 1
    AdaMax = 2
    Lamb = 3
    LambNoBias = 4


class AdaptiveMode(Numbered):
    AdaGrad = 0
    RMSProp = 1
    CenteredRMSProp = 2
    AdaDelta = 3


class DeviceType(Numbered):
    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4


class DeviceConnectionType(Numbered):
    Always = 0
    OnDemand = 1
    Never = 2


class DeviceSelectionCriterion(Numbered):
    First = 0
    Random = 1


class SyncPattern(Numbered):
    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class InitType(Numbered):
    NoInit = 0
    Zero = 1


class Instrumentation(Numbered):
    Outer = 0
    Inner = 1


class DataType(Numbered):
    """Element types, UNDEFINED where another tensor's type is meant."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    UINT32 = 6
    UINT64 = 7
    BOOL = 8
    FLOAT = 9
    FLOAT16 = 10
    DOUBLE = 11
    UNDEFINED = 12


class IrSerializationFormat(Numbered):
    JSON = 0
