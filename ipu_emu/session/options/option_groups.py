"""Option groups: session options that consist of several options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ipu_emu.errors import ArgumentTypeError
from ipu_emu.session.options.settings import Settings
from ipu_emu.session.options.tuning_enums import (
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
    "ExperimentalSettings",
    "ReplicatedCollectivesSettings",
]


class BatchSerializationSettings(Settings):
    """How a batch is cut into smaller pieces; no effect here.

    Options:
        factor: No effect here (tuning or reports of the real compiler).
        concatOnVirtualGraphChange: No effect here (tuning or reports of the real compiler).
        concatOnExecutionPhaseChange: No effect here (tuning or reports of the real compiler).
        concatOnPipelineStageChange: No effect here (tuning or reports of the real compiler).
        transformContext: No effect here (tuning or reports of the real compiler).
        method: No effect here (tuning or reports of the real compiler).
        batchSchedule: No effect here (tuning or reports of the real compiler).
    """

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
    """Number of execution phases and how they load weights.

    Options:
        phases: Number of phases; 0 or 1 means none.
        stages: Number of IPUs between which the phases alternate.
        weightIOSchedule: Load the weights of a phase during the previous one (Preload) or when they are
            needed (OnDemand).
        activationIOSchedule: No effect here (tuning or reports of the real compiler).
        optimizerStateIOSchedule: No effect here (tuning or reports of the real compiler).
        accumulatorIOSchedule: No effect here (tuning or reports of the real compiler).
        schedule: No effect here (tuning or reports of the real compiler).
    """

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
    """How the loss scaling adapts to the gradients.

    Options:
        enabled: Adapt the loss scaling.
        toTrackTensors: Ids of the tensors whose gradients are tracked, with GradientsOfUserSpecifiedTensors.
        binEdgeLocation: A gradient counts as large above this fraction of the largest number of its type.
        thresholdUpperCountProportion: Halve the scaling if a larger share of the gradients is large, else
            double it.
        updatePeriod: Number of weight updates between two changes.
        gradientTensorTrackingMethod: Which FLOAT16 tensors of the backward pass are tracked.
    """

    defaults: ClassVar = {
        "enabled": False,
        "toTrackTensors": None,
        "binEdgeLocation": 0.125,
        "thresholdUpperCountProportion": 1e-7,
        "updatePeriod": 1,
        "gradientTensorTrackingMethod": GradientTensorTrackingMethod.AllNonViewChangingGradientTensors,
    }

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "toTrackTensors" and value is not None:
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise ArgumentTypeError(
                    f"{type(self).__name__}.{name} is {value!r}; it must be a list of ids of tensors, or None"
                )
            value = list(value)
        super().__setattr__(name, value)


class AccumulateOuterFragmentSettings(Settings):
    """Order of the collectives after accumulation; no effect here.

    Options:
        schedule: No effect here (tuning or reports of the real compiler).
        excludedVirtualGraphs: No effect here (tuning or reports of the real compiler).
    """

    defaults: ClassVar = {"schedule": AccumulateOuterFragmentSchedule.Serial, "excludedVirtualGraphs": []}


class ReplicatedCollectivesSettings(Settings):
    """How collectives are prepared and merged; no effect here.

    Options:
        prepareScheduleForMergingCollectives: No effect here (tuning or reports of the real compiler).
        mergeAllReduceCollectives: No effect here (tuning or reports of the real compiler).
        mergeReduceScatterCollectives: No effect here (tuning or reports of the real compiler).
        mergeAllGatherCollectives: No effect here (tuning or reports of the real compiler).
    """

    defaults: ClassVar = {
        "prepareScheduleForMergingCollectives": False,
        "mergeAllReduceCollectives": False,
        "mergeReduceScatterCollectives": False,
        "mergeAllGatherCollectives": False,
    }


class AutodiffSettings(Settings):
    """How gradients of subgraphs obtain forward values; no effect here.

    Options:
        stitchStrategy: No effect here (tuning or reports of the real compiler).
    """

    defaults: ClassVar = {"stitchStrategy": AutodiffStitchStrategy.RecomputeAllNonInputs}


class ExperimentalSettings(Settings):
    """Experimental settings; no effect here.

    Options:
        customTransformApplierSettings: No effect here (transforms in C++ cannot be loaded).
        createHostTransferableTensorWithOffset: No effect here (tuning or reports of the real compiler).
    """

    defaults: ClassVar = {"customTransformApplierSettings": {}, "createHostTransferableTensorWithOffset": False}
