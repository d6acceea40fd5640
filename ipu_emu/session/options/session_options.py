"""SessionOptions: how a session places, replicates and runs a model.

Every option of PopART 3.4 is accepted and stored. A warning names those that only tune a real IPU. The others:

    virtual graphs, execution phases, pipelining       where and when ops run
    I/O tiles                                          which data the host exchanges during compute
    buffering depths                                   which inputs wait in Streaming Memory
    recomputation, tensor locations, sharding          what is stored, and where

change no result, except that pipelined training without gradient accumulation computes with stale weights.
Extensions: ``pipelineSchedule`` is popart or another schedule of ``ipu-emu schedule``; with
``pipelineConcurrentStages`` a stage may have parts on several IPUs, which work at the same time; with
``pipelineShardedStages`` the ops of a stage may be on several IPUs and read each other's results, and all of these
IPUs are busy for the whole stage; with ``pipelineBatchSerialization`` = q a stage of the sequential schedule
processes q micro-batches before the next stage; ``trainedWeights`` lists the initializers that are trained.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.gradients.gradient import GradientReduction
from ipu_emu.errors import EmulatorError
from ipu_emu.session.options.option_enums import (
    Instrumentation,
    MeanReductionStrategy,
    RecomputationType,
    ReductionType,
    ReplicatedTensorSharding,
    SyntheticDataMode,
    VirtualGraphMode,
)
from ipu_emu.session.options.option_groups import (
    AccumulateOuterFragmentSettings,
    AutodiffSettings,
    AutomaticLossScalingSettings,
    BatchSerializationSettings,
    ExecutionPhaseSettings,
    ExperimentalSettings,
    ReplicatedCollectivesSettings,
)
from ipu_emu.session.options.settings import Settings
from ipu_emu.session.options.tensor_location import TensorLocationSettings
from ipu_emu.session.options.tuning_enums import (
    ExecutionPhaseIOSchedule,
    MergeVarUpdateType,
    SubgraphCopyingStrategy,
)
from ipu_emu.session.options.without_effect import say_without_effect

_BUCKET_BYTES = "maximum_reduce_many_buffer_size"

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
    "pipelineSchedule": "popart",
    "pipelineBatchSerialization": 1,
    "pipelineConcurrentStages": False,
    "pipelineShardedStages": False,
    "autoRecomputation": RecomputationType.NoRecompute,
    "explicitRecomputation": False,
    "useHostCopyOps": False,
    "enableExplicitMainLoops": False,
    "createImplicitPipeliningFwdOnlyProgram": False,
    "executionPhaseSettings": ExecutionPhaseSettings(),
    "weightTensorLocationSettings": TensorLocationSettings(),
    "optimizerStateTensorLocationSettings": TensorLocationSettings(),
    "accumulatorTensorLocationSettings": TensorLocationSettings(),
    "activationTensorLocationSettings": TensorLocationSettings(),
    "tensorLocationSettingsOverride": {},
    "numIOTiles": 0,
}

_STREAMS: dict[str, Any] = {
    "syntheticDataMode": SyntheticDataMode.Off,
    "enablePrefetchDatastreams": True,
    "defaultBufferingDepth": 1,
    "bufferingDepthMap": {},
    "disableGradAccumulationTensorStreams": False,
    "constantWeights": True,
}

_NUMERICS: dict[str, Any] = {
    "trainedWeights": None,
    "enableStochasticRounding": False,
    "enableFloatingPointChecks": False,
    "enableLoadAndOffloadRNGState": False,
    "enableSupportedDataTypeCasting": True,
    "automaticLossScalingSettings": AutomaticLossScalingSettings(),
    "ensureFp32LossScaleTensor": False,
    "groupNormStridedChannelGrouping": False,
}

_COMPILER: dict[str, Any] = {
    "enableEngineCaching": False,
    "cachePath": "session_cache",
}

_REPORTS: dict[str, Any] = {
    "instrumentWithHardwareCycleCounter": False,
    "hardwareInstrumentations": {Instrumentation.Outer},
    "engineOptions": {},
    "gclOptions": {},
}


#: Options that only tune a real IPU or its compiler, or that write its reports.
_WITHOUT_EFFECT: dict[str, Any] = {
    "stashAllTensorsInferencePipeline": False,
    "batchSerializationSettings": BatchSerializationSettings(),
    "groupHostSync": False,
    "aliasZeroCopy": False,
    "rearrangeAnchorsOnHost": True,
    "rearrangeStreamsOnHost": False,
    "disableOptimizerStateTensorStreams": False,
    "partialsTypeMatMuls": "",
    "enableStableNorm": False,
    "strictOpVersions": True,
    "compileEngine": True,
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
    "swapLimitScheduler": 1e9,
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
    "autodiffSettings": AutodiffSettings(),
    "subgraphCopyingStrategy": SubgraphCopyingStrategy.OnEnterAndExit,
    "createHaltOnError": False,
    "throwIfLog2ScaleTensorNotInRange": True,
    "updatableNamedBuffers": [],
    "customCodelets": [],
    "customCodeletCompileFlags": "",
    "reportOptions": {},
    "convolutionOptions": {},
    "lstmOptions": {},
    "matmulOptions": {},
    "logDir": "",
    "dotChecks": set(),
    "dotOpNames": False,
    "firstDotOp": 0,
    "finalDotOp": 10000,
    "exportPoplarComputationGraph": False,
    "exportPoplarVertexGraph": False,
    "developerSettings": {},
    "experimentalSettings": ExperimentalSettings(),
    "_enableRngStateManagement": False,
}


class SessionOptions(Settings):
    """Options of a session, with PopART's names and defaults; those ``without_effect`` are not described.

    Options:
        enableReplicatedGraphs: Train or run several replicas in this instance.
        replicatedGraphCount: Number of replicas in this instance.
        enableGradientAccumulation: Add up the gradients of several micro-batches before each weight
            update.
        accumulationFactor: Number of micro-batches per weight update.
        accumulationAndReplicationReductionType: Whether gradients are summed or averaged over
            micro-batches and replicas.
        meanAccumulationAndReplicationReductionStrategy: For a mean, whether to divide once at the end
            (Post) or keep a running mean (Running).
        enableDistributedReplicatedGraphs: Train or run together with the replicas of other instances.
        globalReplicationFactor: Number of replicas over all instances.
        globalReplicaOffset: Global index of the first replica of this instance.
        virtualGraphMode: How ops are assigned to the IPUs of a replica.
        virtualGraphSplitRatios: With VirtualGraphMode.Auto, the share of the work that each IPU gets.
        enablePipelining: Run the stages of the model as a pipeline.
        pipelineSchedule: Extension: popart, or another schedule that ``ipu-emu schedule --help`` lists.
        pipelineBatchSerialization: Extension: micro-batches that a stage of the sequential schedule
            processes in a row.
        pipelineConcurrentStages: Extension: a stage may have independent parts on several IPUs.
        pipelineShardedStages: Extension: the ops of a stage may be spread over several IPUs, which are
            all busy for the whole stage.
        autoRecomputation: Which activations are recomputed for the backward pass instead of being kept.
        explicitRecomputation: Make recomputation part of the graph; one of the three options of
            enableExplicitIR.
        useHostCopyOps: Make host exchange part of the graph; one of the three options of
            enableExplicitIR.
        enableExplicitMainLoops: Make the loops of a step part of the graph; one of the three options of
            enableExplicitIR.
        createImplicitPipeliningFwdOnlyProgram: Also compile a program that runs only the forward stages.
        executionPhaseSettings: Number of execution phases and how they load weights.
        weightTensorLocationSettings: Where weights are kept.
        optimizerStateTensorLocationSettings: Where optimiser states are kept.
        accumulatorTensorLocationSettings: Where accumulated gradients are kept; they are never sharded.
        activationTensorLocationSettings: Where activations are kept between the forward and the backward
            pass.
        tensorLocationSettingsOverride: Tensor id to TensorLocation, for single tensors.
        numIOTiles: Number of tiles of each IPU that exchange host data while the others compute.
        syntheticDataMode: Compute with data generated on the device instead of host data.
        enablePrefetchDatastreams: Let step data be fetched before it is needed.
        defaultBufferingDepth: Number of micro-batches of every input that may wait in Streaming Memory.
        bufferingDepthMap: Tensor id to buffering depth, for single inputs.
        disableGradAccumulationTensorStreams: Do not give the host access to accumulated gradients.
        constantWeights: For inference, treat the weights as constants that the host cannot change.
        trainedWeights: Extension: ids of the initializers that are trained; None is every floating-point one.
        enableStochasticRounding: Round FLOAT16 results up or down at random, without bias.
        enableFloatingPointChecks: Raise an error for the first result that is infinite or not a number.
        enableLoadAndOffloadRNGState: Allow the host to read and set the state of the random number generator.
        enableSupportedDataTypeCasting: Cast types that IPUs do not support (INT64, UINT64) to ones that
            they do.
        automaticLossScalingSettings: Adapt the loss scaling to the gradients.
        ensureFp32LossScaleTensor: Hold the loss scaling as FLOAT in FLOAT16 models too.
        groupNormStridedChannelGrouping: Group normalisation takes channel c into group c mod G.
        enableEngineCaching: Save compiled executables in cachePath.
        cachePath: Folder of compiled executables.
        instrumentWithHardwareCycleCounter: Make getCycleCount return the modelled cycles of a step.
        hardwareInstrumentations: Which programs getCycleCount covers.
        engineOptions: Options of the Poplar engine; "streamingMemory.folder" (extension) maps Streaming
            Memory to a file.
        gclOptions: Options of GCL; "maximum_reduce_many_buffer_size" limits the bytes of one all-reduce.
    """

    defaults: ClassVar = _REPLICATION | _PLACEMENT | _STREAMS | _NUMERICS | _COMPILER | _REPORTS | _WITHOUT_EFFECT
    without_effect: ClassVar = frozenset(_WITHOUT_EFFECT)
    renamed: ClassVar = {
        "defaultPrefetchBufferingDepth": "defaultBufferingDepth",
        "prefetchBufferingDepthMap": "bufferingDepthMap",
    }

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.renamed:
            logging.getLogger("popart.session").warning(
                f"The session option {name} has been deprecated and will be removed in a future release. Please use "
                f"the alias {self.renamed[name]} instead."
            )
        super().__setattr__(name, value)

    def enableExplicitIR(self, enable: bool) -> None:
        """Set the three options that make streams, loops and recomputation explicit."""
        for name in ("useHostCopyOps", "enableExplicitMainLoops", "explicitRecomputation"):
            setattr(self, name, enable)

    def getGlobalReplicationFactor(self) -> int:
        """Replicas over all instances."""
        return int(self.globalReplicationFactor) if self.enableDistributedReplicatedGraphs else self.localReplicas()

    def localReplicas(self) -> int:
        """Replicas of this instance."""
        return int(self.replicatedGraphCount) if self.enableReplicatedGraphs else 1

    def accumulation(self) -> int:
        """Micro-batches per batch."""
        return int(self.accumulationFactor) if self.enableGradientAccumulation else 1

    def reduction(self) -> GradientReduction:
        """How the gradients of micro-batches and replicas are combined."""
        if self.accumulationAndReplicationReductionType is not ReductionType.Mean:
            return GradientReduction.SUM
        running = self.meanAccumulationAndReplicationReductionStrategy is MeanReductionStrategy.Running
        return GradientReduction.MEAN_RUNNING if running else GradientReduction.MEAN_POST

    def recomputation(self) -> Recomputation:
        """Which activations the backward pass recomputes."""
        return Recomputation(RecomputationType(self.autoRecomputation).name)

    def trained(self) -> frozenset[str] | None:
        """Ids of the initializers that are trained; None is every floating-point one."""
        weights = self.trainedWeights
        if weights is None:
            return None
        if isinstance(weights, str) or not all(isinstance(id, str) for id in weights):
            raise EmulatorError(f"trainedWeights is {weights!r}; give a list of ids of initializers")
        return frozenset(weights)

    def bucketBytes(self) -> int | None:
        """The most bytes of gradients in one all-reduce; None: no limit.

        It is ``gclOptions["maximum_reduce_many_buffer_size"]``, in bytes.
        """
        size = self.gclOptions.get(_BUCKET_BYTES)
        if size is None:
            return None
        if not str(size).isdigit():
            raise EmulatorError(f"{_BUCKET_BYTES}={size}: give a number of bytes")
        return int(size)

    def cacheFolder(self) -> str | None:
        """The folder of saved executables that the options choose."""
        return self.cachePath if self.enableEngineCaching else None

    def usesVirtualGraphs(self) -> bool:
        """Whether ops are assigned to several IPUs."""
        return self.virtualGraphMode is not VirtualGraphMode.Off

    def preloads(self) -> bool:
        """Whether execution phases load weights while the previous phase computes."""
        phased = self.virtualGraphMode is VirtualGraphMode.ExecutionPhases
        return phased and self.executionPhaseSettings.weightIOSchedule is ExecutionPhaseIOSchedule.Preload

    def pipelinesExplicitly(self) -> bool:
        """Whether pipelining is explicit: its loops, copies and recomputation are part of the graph."""
        parts = (self.useHostCopyOps, self.enableExplicitMainLoops, self.explicitRecomputation)
        return bool(self.enablePipelining and all(parts))

    def check_counts(self) -> None:
        """Raise EmulatorError for factors that are given but not enabled; PopART raises it at prepareDevice."""
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

    def check(self, *, training: bool) -> None:
        """Raise EmulatorError if options contradict each other; warn of those without effect."""
        of_gcl = [f"gclOptions[{name!r}]" for name in self.gclOptions if name != _BUCKET_BYTES]
        sharded = self.activationTensorLocationSettings.location.replicatedTensorSharding
        of_activations = ["activationTensorLocationSettings.location.replicatedTensorSharding"]
        of_activations = of_activations if sharded is ReplicatedTensorSharding.On else []
        say_without_effect("Session options", [*self.changed_without_effect(), *of_activations, *of_gcl])
        for name in ("accumulationFactor", "replicatedGraphCount"):
            if getattr(self, name) < 1:
                raise EmulatorError(f"Invalid {name} value: {getattr(self, name)}, must be greater or equal than 1")
        if self.accumulationAndReplicationReductionType is ReductionType.NoReduction:
            raise EmulatorError(
                "accumulationAndReplicationReductionType is NoReduction, but gradients of micro-batches and replicas "
                "become one; use Sum or Mean"
            )
        if self.enableGradientAccumulation and not training:
            raise EmulatorError("Gradient Accumulation only available when training.")
        if self.automaticLossScalingSettings.enabled and not training:
            raise EmulatorError("[AutomaticLossScale transform] Only compatible when doing training")
        if self.enableExplicitMainLoops and not self.useHostCopyOps and not self.enablePipelining:
            raise EmulatorError("enableExplicitMainLoops requires useHostCopyOps.")
        if self.executionPhaseSettings.phases > 1 and self.virtualGraphMode is not VirtualGraphMode.ExecutionPhases:
            raise EmulatorError("> 1 execution phases requires VirtualGraphMode::ExecutionPhases")
        if self.enableDistributedReplicatedGraphs:
            self._check_distributed()

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
