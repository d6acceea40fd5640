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


class BatchSerializationSettings(Settings):
    """How a batch is cut into smaller pieces; no effect here."""

    defaults: ClassVar = {
        "factor": 0,
        "concatOnVirtualGraphChange": True,
        "concatOnExecutionPhaseChange": True,
        "concatOnPipelineStageChange": True,
        "transformContext": BatchSerializationTransformContext.Fwd,
        "method": BatchSerializationMethod.UnrollDynamic,
        "batchSchedule": BatchSerializationBatchSchedule.Isomorphic,
    }
    without_effect: ClassVar = frozenset(defaults)


class ExecutionPhaseSettings(Settings):
    """Number of execution phases and how they load weights.

    Options:
        phases: Number of phases; 0 or 1 means none.
        stages: Number of IPUs between which the phases alternate.
        weightIOSchedule: Load the weights of a phase during the previous one (Preload) or when they are
            needed (OnDemand).
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
    without_effect: ClassVar = frozenset(
        ["activationIOSchedule", "optimizerStateIOSchedule", "accumulatorIOSchedule", "schedule"]
    )


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
    """Order of the collectives after accumulation; no effect here."""

    defaults: ClassVar = {"schedule": AccumulateOuterFragmentSchedule.Serial, "excludedVirtualGraphs": []}
    without_effect: ClassVar = frozenset(defaults)


class ReplicatedCollectivesSettings(Settings):
    """How collectives are prepared and merged; no effect here."""

    defaults: ClassVar = {
        "prepareScheduleForMergingCollectives": False,
        "mergeAllReduceCollectives": False,
        "mergeReduceScatterCollectives": False,
        "mergeAllGatherCollectives": False,
    }
    without_effect: ClassVar = frozenset(defaults)


class AutodiffSettings(Settings):
    """How gradients of subgraphs obtain forward values; no effect here."""

    defaults: ClassVar = {"stitchStrategy": AutodiffStitchStrategy.RecomputeAllNonInputs}
    without_effect: ClassVar = frozenset(defaults)


class ExperimentalSettings(Settings):
    """Experimental settings; no effect here."""

    defaults: ClassVar = {"customTransformApplierSettings": {}, "createHostTransferableTensorWithOffset": False}
    without_effect: ClassVar = frozenset(defaults)
