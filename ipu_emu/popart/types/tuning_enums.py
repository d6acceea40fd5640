"""The enumerations of PopART that only tune a real IPU, with its names and numbers."""

from __future__ import annotations

from ipu_emu.popart.types.enums import Numbered

__all__ = [
    "AccumulateOuterFragmentSchedule",
    "AutodiffStitchStrategy",
    "BatchSerializationBatchSchedule",
    "BatchSerializationMethod",
    "BatchSerializationTransformContext",
    "ExecutionPhaseIOSchedule",
    "ExecutionPhaseSchedule",
    "GradientTensorTrackingMethod",
    "MergeVarUpdateType",
    "SubgraphCopyingStrategy",
]


class MergeVarUpdateType(Numbered):
    Off = 0
    All = 1
    AutoTight = 2
    AutoLoose = 3


class AccumulateOuterFragmentSchedule(Numbered):
    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class BatchSerializationTransformContext(Numbered):
    Forward = 0
    Backward = 1
    Fwd = 0
    Bwd = 1


class BatchSerializationMethod(Numbered):
    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationBatchSchedule(Numbered):
    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class ExecutionPhaseIOSchedule(Numbered):
    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(Numbered):
    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class GradientTensorTrackingMethod(Numbered):
    AllNonViewChangingGradientTensors = 0
    ConvAndMatmulGradients = 1
    GradientsOfUserSpecifiedTensors = 2


class AutodiffStitchStrategy(Numbered):
    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class SubgraphCopyingStrategy(Numbered):
    OnEnterAndExit = 0
    JustInTime = 1
