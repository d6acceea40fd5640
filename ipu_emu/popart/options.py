"""SessionOptions: how a session places, replicates and runs a model.

Every option of PopART 3.4 is accepted and kept. Those that only tune a real IPU have no effect; those that would
change results, and that this version cannot honour, are refused by ``refused``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ipu_emu.errors import EmulatorError
from ipu_emu.popart.enums import (
    AccumulateOuterFragmentSchedule,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    Instrumentation,
    MeanReductionStrategy,
    MergeVarUpdateType,
    RecomputationType,
    ReductionType,
    SyntheticDataMode,
    VirtualGraphMode,
)
from ipu_emu.popart.location import TensorLocationSettings
from ipu_emu.popart.settings import Settings
from ipu_emu.transforms.training import Reduction

__all__ = [
    "AccumulateOuterFragmentSettings",
    "AutomaticLossScalingSettings",
    "BatchSerializationSettings",
    "ExecutionPhaseSettings",
    "ReplicatedCollectivesSettings",
    "SessionOptions",
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

    defaults: ClassVar = {"phases": 0, "stages": 2, "weightIOSchedule": None, "activationIOSchedule": None}


class AutomaticLossScalingSettings(Settings):
    """When and how the loss scaling follows the gradients."""

    defaults: ClassVar = {
        "enabled": False,
        "binEdgeLocation": 0.125,
        "thresholdUpperCountProportion": 1e-7,
        "updatePeriod": 1,
        "toTrackTensors": None,
        "gradientTensorTrackingMethod": None,
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


_REPLICATION: dict[str, Any] = {
    "enableReplicatedGraphs": False,
    "replicatedGraphCount": 1,
    "enableGradientAccumulation": False,
    "accumulationFactor": 1,
    "accumulationAndReplicationReductionType": ReductionType.Sum,
    "meanAccumulationAndReplicationReductionStrategy": MeanReductionStrategy.Post,
    "enableDistributedReplicatedGraphs": False,
    "globalReplicationFactor": 1,
    "globalReplicaOffset": 0,
}

_PLACEMENT: dict[str, Any] = {
    "virtualGraphMode": VirtualGraphMode.Off,
    "virtualGraphSplitRatios": [],
    "enablePipelining": False,
    "autoRecomputation": RecomputationType.NoRecompute,
    "explicitRecomputation": False,
    "useHostCopyOps": False,
    "enableExplicitMainLoops": False,
    "createImplicitPipeliningFwdOnlyProgram": False,
    "stashAllTensorsInferencePipeline": False,
    "executionPhaseSettings": ExecutionPhaseSettings(),
    "batchSerializationSettings": BatchSerializationSettings(),
    "weightTensorLocationSettings": TensorLocationSettings(),
    "optimizerStateTensorLocationSettings": TensorLocationSettings(),
    "accumulatorTensorLocationSettings": TensorLocationSettings(),
    "activationTensorLocationSettings": TensorLocationSettings(),
    "tensorLocationSettingsOverride": {},
    "numIOTiles": 0,
    "groupHostSync": False,
    "aliasZeroCopy": False,
}

_STREAMS: dict[str, Any] = {
    "syntheticDataMode": SyntheticDataMode.Off,
    "enablePrefetchDatastreams": True,
    "defaultBufferingDepth": 1,
    "bufferingDepthMap": {},
    "rearrangeAnchorsOnHost": True,
    "rearrangeStreamsOnHost": False,
    "disableGradAccumulationTensorStreams": False,
    "disableOptimizerStateTensorStreams": False,
    "constantWeights": True,
}

_NUMERICS: dict[str, Any] = {
    "enableStochasticRounding": False,
    "enableFloatingPointChecks": False,
    "enableLoadAndOffloadRNGState": False,
    "enableSupportedDataTypeCasting": True,
    "automaticLossScalingSettings": AutomaticLossScalingSettings(),
    "ensureFp32LossScaleTensor": False,
    "partialsTypeMatMuls": "",
    "groupNormStridedChannelGrouping": False,
    "enableStableNorm": False,
    "strictOpVersions": True,
}

_COMPILER: dict[str, Any] = {
    "compileEngine": True,
    "enableEngineCaching": False,
    "cachePath": "session_cache",
    "enableVariablesCaching": True,
    "enableOutlining": True,
    "enableOutliningCopyCostPruning": True,
    "outlineThreshold": 1.0,
    "outlineSequenceBreakCost": 10000.0,
    "mergeVarUpdate": MergeVarUpdateType.Off,
    "mergeVarUpdateMemThreshold": 1000000,
    "looseThresholdAtPeak": 8000,
    "delayVarUpdates": True,
    "scheduleNonWeightUpdateGradientConsumersEarly": False,
    "decomposeGradSum": False,
    "swapLimitScheduler": int(1e9),
    "timeLimitScheduler": 1e9,
    "kahnTieBreaker": "greedy",
    "transitiveClosureOptimizationThreshold": 100000,
    "explicitPipelining": False,
    "enableInplaceAmbiguityChecking": False,
    "enableMergeExchange": True,
    "enableConstantFoldingOfMultipleConsumers": True,
    "useLoopCandidateCreator": False,
    "enableGroupedMatmuls": False,
    "enableSerializedMatmuls": True,
    "enableNonStableSoftmax": False,
    "enableFullyConnectedPass": True,
    "enablePreferredSeparation": True,
    "separateCallOpPdfs": True,
    "opxAliasChecking": False,
    "opxModifyChecking": False,
    "accumulateOuterFragmentSettings": AccumulateOuterFragmentSettings(),
    "replicatedCollectivesSettings": ReplicatedCollectivesSettings(),
    "customCodelets": [],
    "customCodeletCompileFlags": "",
}

_REPORTS: dict[str, Any] = {
    "instrumentWithHardwareCycleCounter": False,
    "hardwareInstrumentations": {Instrumentation.Outer},
    "engineOptions": {},
    "reportOptions": {},
    "convolutionOptions": {},
    "lstmOptions": {},
    "matmulOptions": {},
    "gclOptions": {},
    "logDir": "",
    "dotChecks": set(),
    "dotOpNames": False,
    "firstDotOp": 0,
    "finalDotOp": 10000,
    "exportPoplarComputationGraph": False,
    "exportPoplarVertexGraph": False,
    "developerSettings": {},
    "experimentalSettings": {},
}


class SessionOptions(Settings):
    """Options of a session, with PopART's names and defaults."""

    defaults: ClassVar = _REPLICATION | _PLACEMENT | _STREAMS | _NUMERICS | _COMPILER | _REPORTS
    renamed: ClassVar = {
        "defaultPrefetchBufferingDepth": "defaultBufferingDepth",
        "prefetchBufferingDepthMap": "bufferingDepthMap",
    }

    def enableExplicitIR(self, enable: bool) -> None:
        """Set the three options that make streams, loops and recomputation explicit."""
        for name in ("useHostCopyOps", "enableExplicitMainLoops", "explicitRecomputation"):
            setattr(self, name, enable)

    def getGlobalReplicationFactor(self) -> int:
        """Replicas over all instances."""
        return int(self.globalReplicationFactor) if self.enableDistributedReplicatedGraphs else self.localReplicas()

    def localReplicas(self) -> int:
        return int(self.replicatedGraphCount) if self.enableReplicatedGraphs else 1

    def accumulation(self) -> int:
        """Micro-batches per batch."""
        return int(self.accumulationFactor) if self.enableGradientAccumulation else 1

    def reduction(self) -> Reduction:
        """How micro-batches and replicas become one gradient."""
        if self.accumulationAndReplicationReductionType is not ReductionType.Mean:
            return Reduction.SUM
        running = self.meanAccumulationAndReplicationReductionStrategy is MeanReductionStrategy.Running
        return Reduction.MEAN_RUNNING if running else Reduction.MEAN_POST

    def check(self, *, training: bool) -> None:
        """Raise EmulatorError where options contradict each other."""
        if not self.enableReplicatedGraphs and self.replicatedGraphCount > 1:
            raise EmulatorError(
                "enableReplicatedGraphs is false, but replicatedGraphCount > 1. Either enable replication, or set "
                "the replicated graph count to 1"
            )
        if not self.enableGradientAccumulation and self.accumulationFactor > 1:
            raise EmulatorError(
                "enableGradientAccumulation is false, but accumulationFactor > 1. Either enable gradient "
                "accumulation, or set the accumulation factor to 1"
            )
        if self.enableGradientAccumulation and not training:
            raise EmulatorError("Gradient Accumulation only available when training.")
        if self.enableExplicitMainLoops and not self.useHostCopyOps:
            raise EmulatorError("enableExplicitMainLoops requires useHostCopyOps.")
        if self.executionPhaseSettings.phases > 1 and self.virtualGraphMode is not VirtualGraphMode.ExecutionPhases:
            raise EmulatorError("> 1 execution phases requires VirtualGraphMode::ExecutionPhases")
        if self.enableDistributedReplicatedGraphs:
            self._check_distributed()
        self._check_refused()

    def _check_distributed(self) -> None:
        factor, offset = self.globalReplicationFactor, self.globalReplicaOffset
        if factor < 1:
            raise EmulatorError(f"Invalid globalReplicationFactor value: {factor}, must be greater or equal than 1")
        if offset < 0:
            raise EmulatorError(f"Invalid globalReplicaOffset value: {offset}, must be greater or equal than 0")
        if offset > factor:
            raise EmulatorError(
                f"Global replica offset: {offset}, is larger than global replication factor: {factor}"
            )
        if self.enableReplicatedGraphs:
            if self.replicatedGraphCount == 1:
                raise EmulatorError("Local replicated graphs enabled but replication factor is 1")
            if self.replicatedGraphCount > factor:
                raise EmulatorError(
                    f"Invalid local replication factor: {self.replicatedGraphCount}, larger than global replication "
                    f"factor: {factor}"
                )

    def _check_refused(self) -> None:
        """Raise for the options that this version cannot honour, all of them together."""
        asked = [text for text, is_asked in _REFUSED.items() if is_asked(self)]
        if asked:
            raise EmulatorError(
                f"Not available in this version of the emulator: {'; '.join(asked)}. Leave the default"
            )


_REFUSED: dict[str, Callable[[SessionOptions], bool]] = {
    "enablePipelining = True": lambda o: o.enablePipelining,
    "virtualGraphMode other than Off": lambda o: o.virtualGraphMode is not VirtualGraphMode.Off,
    "automaticLossScalingSettings.enabled = True": lambda o: o.automaticLossScalingSettings.enabled,
    "enableStochasticRounding = True": lambda o: o.enableStochasticRounding,
    "syntheticDataMode other than Off": lambda o: o.syntheticDataMode is not SyntheticDataMode.Off,
}
