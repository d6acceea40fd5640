"""Option groups: the session options that have options of their own."""

from __future__ import annotations

from typing import ClassVar

from ipu_emu.popart.types.settings import Settings
from ipu_emu.popart.types.tuning_enums import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
)

__all__ = [
    "AccumulateOuterFragmentSettings",
    "AutodiffSettings",
    "AutomaticLossScalingSettings",
    "BatchSerializationSettings",
    "ExecutionPhaseSettings",
    "ReplicatedCollectivesSettings",
]


class BatchSerializationSettings(Settings):
    """How a batch is cut into smaller pieces; no numeric effect."""

    defaults: ClassVar = {
        "factor": 0,
        "concatOnVirtualGraphChange": True,
        "concatOnExecutionPhaseChange": True,
        "concatOnPipelineStageChange": True,
        "transformContext": BatchSerializationTransformContext.Fwd,
        "method": BatchSerializationMethod.UnrollDynamic,
        "batchSchedule": BatchSerializationBatchSchedule.Isomorphic,
    }


class ExecutionPhaseSettings(Settings):
    """Phases and stages of phased execution."""

    defaults: ClassVar = {
        "phases": 0,
        "stages": 2,
        "weightIOSchedule": ExecutionPhaseIOSchedule.Preload,
        "activationIOSchedule": ExecutionPhaseIOSchedule.Preload,
        "optimizerStateIOSchedule": ExecutionPhaseIOSchedule.OnDemand,
        "accumulatorIOSchedule": ExecutionPhaseIOSchedule.Preload,
        "schedule": ExecutionPhaseSchedule.Interleaving,
    }


class AutomaticLossScalingSettings(Settings):
    """When and how the loss scaling follows the gradients."""

    defaults: ClassVar = {
        "enabled": False,
        "binEdgeLocation": 0.125,
        "thresholdUpperCountProportion": 1e-7,
        "updatePeriod": 1,
        "toTrackTensors": None,
        "gradientTensorTrackingMethod": GradientTensorTrackingMethod.AllNonViewChangingGradientTensors,
    }


class AccumulateOuterFragmentSettings(Settings):
    """Order of the collectives after accumulation; no numeric effect."""

    defaults: ClassVar = {"schedule": AccumulateOuterFragmentSchedule.Serial, "excludedVirtualGraphs": []}


class ReplicatedCollectivesSettings(Settings):
    """How collectives are prepared and merged; no numeric effect."""

    defaults: ClassVar = {
        "prepareScheduleForMergingCollectives": False,
        "mergeAllReduceCollectives": False,
        "mergeReduceScatterCollectives": False,
        "mergeAllGatherCollectives": False,
    }


class AutodiffSettings(Settings):
    """How gradients of subgraphs get what they need; no numeric effect."""

    defaults: ClassVar = {"stitchStrategy": AutodiffStitchStrategy.RecomputeAllNonInputs}
