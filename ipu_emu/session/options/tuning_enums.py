"""Tuning enumerations: those of PopART that only tune a real IPU, with its names and numbers."""

from __future__ import annotations

from ipu_emu.session.options.option_enums import Numbered


class MergeVarUpdateType(Numbered):
    """How PopART merges weight updates; no effect here."""

    Off = 0
    All = 1
    AutoTight = 2
    AutoLoose = 3


class AccumulateOuterFragmentSchedule(Numbered):
    """Order of the collectives and updates after gradient accumulation; no effect here."""

    Scheduler = 0
    Serial = 1
    OverlapCycleOptimized = 2
    OverlapMemoryOptimized = 3


class BatchSerializationTransformContext(Numbered):
    """The pass that is serialised; no effect here."""

    Forward = 0
    Backward = 1
    Fwd = 0
    Bwd = 1


class BatchSerializationMethod(Numbered):
    """Whether the parts of a serialised batch are unrolled or a loop; no effect here."""

    UnrollDynamic = 0
    UnrollStatic = 1
    Loop = 2


class BatchSerializationBatchSchedule(Numbered):
    """Order of the parts of a serialised batch; no effect here."""

    Scheduler = 0
    Isomorphic = 1
    OverlapOnIo = 2
    OverlapOnCompute = 3


class ExecutionPhaseIOSchedule(Numbered):
    """When an execution phase loads its weights: during the previous phase, or on demand."""

    Preload = 0
    OnDemand = 1


class ExecutionPhaseSchedule(Numbered):
    """Order of the ops of execution phases; no effect here."""

    Interleaving = 0
    Batch = 1
    BatchClusteredIO = 2


class GradientTensorTrackingMethod(Numbered):
    """Which gradients automatic loss scaling observes."""

    AllNonViewChangingGradientTensors = 0
    ConvAndMatmulGradients = 1
    GradientsOfUserSpecifiedTensors = 2


class AutodiffStitchStrategy(Numbered):
    """How the gradient of a subgraph obtains values of its forward pass; no effect here."""

    RecomputeMinimal = 0
    RecomputeAllNonInputs = 1
    AddFwdOutputs = 2
    SafeAddFwdOutputs = 3


class SubgraphCopyingStrategy(Numbered):
    """When inputs and outputs of a subgraph are copied; no effect here."""

    OnEnterAndExit = 0
    JustInTime = 1
