"""Enumerations: those of PopART, with its names and numbers; those of session options are in ipu_emu.session."""

from __future__ import annotations

from ipu_emu.session.options.option_enums import Numbered


class ScatterReduction(Numbered):
    """How a scatter combines elements with the same index."""

    Sum = 0
    Max = 1
    Min = 2
    Mul = 3
    NoReduction = 4

    @property
    def attribute(self) -> str:
        """Its name in a model."""
        return "none" if self is ScatterReduction.NoReduction else self.name.lower()


class TensorRemapType(Numbered):
    """In which passes the layout of a tensor on the tiles changes."""

    FwdBwdReverse = 0
    FwdBwd = 1
    Fwd = 2


class RecomputeType(Numbered):
    """Whether the outputs of one op are kept or recomputed."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class ExchangeStrategy(Numbered):
    """When host data is exchanged: just in time, or while the IPU computes (needs I/O tiles)."""

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class ReplicatedStreamMode(Numbered):
    """Whether the host gives every replica its own input, or one for all."""

    Replicate = 0
    Broadcast = 1


class AnchorReturnTypeId(Numbered):
    """Which micro-batches of an anchor the host receives; see ``AnchorReturnType``."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class VariableRetrievalMode(Numbered):
    """Which values the host reads of a variable that groups of replicas share."""

    OnePerGroup = 0
    AllReduceReplicas = 1
    AllReplicas = 2


class CollectiveOperator(Numbered):
    """How ``replicatedallreduce`` and ``replicatedreducescatter`` combine the replicas' tensors."""

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
    """Whether weight decay is applied to the update or added to the gradient (L2 regularisation)."""

    Decay = 0
    L2Regularization = 1


class SGDAccumulatorAndMomentum(Numbered):
    """Whether SGD keeps accumulated gradient and momentum in one tensor or in two."""

    Combined = 0
    Separate = 1


class AdamMode(Numbered):
    """Which optimiser ``Adam`` is: with or without bias correction, AdaMax, or LAMB."""

    Adam = 0
    AdamNoBias = 1
    AdaMax = 2
    Lamb = 3
    LambNoBias = 4


class AdaptiveMode(Numbered):
    """Which optimiser ``Adaptive`` is."""

    AdaGrad = 0
    RMSProp = 1
    CenteredRMSProp = 2
    AdaDelta = 3


class DeviceType(Numbered):
    """The type of a device: emulated IPUs of a system, an IPU model, the CPU, or a target for compilation only."""

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4


class DeviceConnectionType(Numbered):
    """When a device attaches to its IPUs: at once, when a session needs it, or never."""

    Always = 0
    OnDemand = 1
    Never = 2


class DeviceSelectionCriterion(Numbered):
    """Which of several free devices is taken."""

    First = 0
    Random = 1


class SyncPattern(Numbered):
    """Which IPUs wait for each other when the host exchanges data."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2


class InitType(Numbered):
    """How ``init`` fills its tensor."""

    NoInit = 0
    Zero = 1


class DataType(Numbered):
    """Element types; UNDEFINED means the type of another tensor."""

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
    """Format of a serialised intermediate representation."""

    JSON = 0


class RecoveryAction(Numbered):
    """The action that makes a system usable again after a recoverable error."""

    IPU_RESET = 0
    LINK_RESET = 1
    PARTITION_RESET = 2
    FULL_RESET = 3
