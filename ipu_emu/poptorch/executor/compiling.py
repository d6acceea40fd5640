"""Compiling: compiles a trace with the options of its executor."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ipu_emu.compiler.annotations import EXECUTION_PHASE, IPU_NUMBER, PIPELINE_STAGE
from ipu_emu.compiler.cache.executable_cache import cache_key, cached_file, compiled_once
from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.gradients.gradient import GradientReduction
from ipu_emu.compiler.optimisers.automatic_loss_scaling import LossScaler
from ipu_emu.compiler.optimisers.update_rule import UpdateRule
from ipu_emu.compiler.options import CompileOptions, HostStreams, TrainingOptions
from ipu_emu.compiler.pipeline import STEP_GRAPH, CompileState, run_passes, start
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op
from ipu_emu.poptorch.enums import MeanReductionStrategy, OutputMode, ReductionType
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.executor.balanced_stages import balanced_stages
from ipu_emu.poptorch.graph_writer import BLOCK
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.options.strategies import BalancedPipeline
from ipu_emu.poptorch.tracing.trace import ModuleTrace
from ipu_emu.program.anchors import Anchor, Return, StepShape
from ipu_emu.program.executable import Executable
from popdist_py.trace import Category, span

__all__ = ["CompiledStep", "compile_trace", "output_mode"]

_RETURNS = {
    OutputMode.Final: Return.FINAL,
    OutputMode.EveryN: Return.EVERY_N,
    OutputMode.All: Return.ALL,
    OutputMode.Sum: Return.SUM,
}
_MOST_IPUS = 64
#: Session options that a program may set by name and that have an effect here.
_EFFECTLESS = frozenset(
    [
        "accumulateOuterFragmentSettings",
        "accumulatorTensorLocationSettings",
        "activationTensorLocationSettings",
        "aliasZeroCopy",
        "autoRecomputation",
        "batchSerializationSettings",
        "cachePath",
        "constantWeights",
        "convolutionOptions",
        "decomposeGradSum",
        "defaultBufferingDepth",
        "defaultPrefetchBufferingDepth",
        "delayVarUpdates",
        "disableGradAccumulationTensorStreams",
        "dotChecks",
        "dotOpNames",
        "enableConstantFoldingOfMultipleConsumers",
        "enableEngineCaching",
        "enableExplicitMainLoops",
        "enableFullyConnectedPass",
        "enableGradientAccumulation",
        "enableInplaceAmbiguityChecking",
        "enableLoadAndOffloadRNGState",
        "enableMergeExchange",
        "enableNonStableSoftmax",
        "enableOutlining",
        "enableOutliningCopyCostPruning",
        "enablePipelining",
        "enablePrefetchDatastreams",
        "enableSerializedMatmuls",
        "enableStableNorm",
        "enableStochasticRounding",
        "enableSupportedDataTypeCasting",
        "engineOptions",
        "enginesOptions",
        "executionPhaseSettings",
        "explicitRecomputation",
        "exportPoplarComputationGraph",
        "exportPoplarVertexGraph",
        "finalDotOp",
        "firstDotOp",
        "gclOptions",
        "groupHostSync",
        "groupNormStridedChannelGrouping",
        "hardwareInstrumentations",
        "implicitPipelining",
        "instrumentWithHardwareCycleCounter",
        "kahnTieBreaker",
        "logDir",
        "lstmOptions",
        "matmulOptions",
        "mergeVarUpdate",
        "mergeVarUpdateMemThreshold",
        "numIOTiles",
        "optimizerStateTensorLocationSettings",
        "ooeExecution",
        "opxAliasChecking",
        "opxModifyChecking",
        "outlineSequenceBreakCost",
        "outlineThreshold",
        "partialsTypeMatMuls",
        "prefetchBufferingDepthMap",
        "rearrangeAnchorsOnHost",
        "rearrangeStreamsOnHost",
        "replicatedCollectivesSettings",
        "reportOptions",
        "saveInitializersToFile",
        "scheduleNonWeightUpdateGradientConsumersEarly",
        "separateCallOpPdfs",
        "serializedPoprithmsShiftGraphsDir",
        "shouldDelayVarUpdates",
        "strictOpVersions",
        "subgraphCopyingStrategy",
        "subgraphMemoryThreshold",
        "swapLimitScheduler",
        "syntheticDataMode",
        "tensorLocationSettingsOverride",
        "timeLimitScheduler",
        "transitiveClosureOptimizationThreshold",
        "useHostCopyOps",
        "useLoopCandidateCreator",
        "virtualGraphMode",
        "weightTensorLocationSettings",
        "automaticLossScalingSettings",
        "accumulationFactor",
        "replicatedGraphCount",
    ]
)


@dataclass(frozen=True)
class CompiledStep:
    """A compiled step; ``step``: the compiler's state with the complete graph; ``file``: in the cache."""

    step: CompileState
    executable: Executable
    ipus: int
    file: Path | None = None


def output_mode(options: Options, *, training: bool) -> OutputMode:
    """Return the mode of outputs: if none was chosen, Final for training and All for inference."""
    chosen: OutputMode = options.output_mode
    if chosen is not OutputMode.Default:
        return chosen
    return OutputMode.Final if training else OutputMode.All


@span("compile", Category.COMPILATION)
def compile_trace(trace: ModuleTrace, options: Options, rule: UpdateRule | None) -> CompiledStep:
    """Compile, or load the executable from the cache; raise poptorch.Error if that fails."""
    try:
        return _compiled(trace, options, rule)
    except EmulatorError as error:
        raise Error(str(error), "popart_exception") from error


def _compiled(trace: ModuleTrace, options: Options, rule: UpdateRule | None) -> CompiledStep:
    check_session_options(options._Popart.options)
    graph, ipus, stages = _placed(trace, options)
    _check_ipus(options, ipus)
    asked = _compile_options(trace, options, rule, ipus, stages)
    step = run_passes(start(graph, asked), stop_after=STEP_GRAPH)
    folder = options.executable_cache

    def lower() -> Executable:
        return run_passes(step).executable

    if not folder:
        return CompiledStep(step, lower(), ipus)
    key = cache_key(step.graph, replace(step.options, training=None), step.gradients)
    return CompiledStep(step, compiled_once(folder, step.graph, key, lower), ipus, cached_file(folder, key))


# Placement


def _placed(trace: ModuleTrace, options: Options) -> tuple[Graph, int, int]:
    """The graph with the IPU and stage of each op, and the numbers of IPUs and of stages."""
    strategy = options._execution_strategy
    if isinstance(strategy, BalancedPipeline):
        return _balanced(trace.graph, strategy.ipus)
    used = {op.attributes.get(BLOCK, 0) for op in trace.graph.ops}
    places = strategy.place(trace.blocks) if len(trace.blocks) > 1 else [(0, 0)]
    stages = sorted({places[block][0] for block in used} | ({places[0][0]} if not used else set()))
    number = {stage: index for index, stage in enumerate(stages)}
    ipus = max((places[block][1] for block in used), default=0) + 1
    graph = trace.graph.copy()
    graph.ops = [_annotated(op, places, number, ipus, strategy) for op in graph.ops]
    order = [places[block][1] for block in sorted(used, key=lambda block: places[block][0])]
    switches = 1 + sum(1 for a, b in pairwise(order) if a != b)
    return graph, ipus, switches


def _balanced(traced: Graph, ipus: int) -> tuple[Graph, int, int]:
    graph, places = traced.copy(), balanced_stages(traced, ipus)
    graph.ops = [_on(op, stage, ipu, ipus) for op, (stage, ipu) in zip(graph.ops, places, strict=True)]
    return graph, ipus, max(stage for stage, _ in places) + 1


def _on(op: Op, stage: int, ipu: int, ipus: int) -> Op:
    attributes = {name: value for name, value in op.attributes.items() if name != BLOCK}
    return replace(op, attributes=attributes | ({IPU_NUMBER: ipu, PIPELINE_STAGE: stage} if ipus > 1 else {}))


def _annotated(op: Op, places: Any, number: Mapping[int, int], ipus: int, strategy: Any) -> Op:
    stage, ipu = places[op.attributes.get(BLOCK, 0)]
    attributes = {name: value for name, value in op.attributes.items() if name != BLOCK}
    if strategy.phased:
        attributes |= {EXECUTION_PHASE: number[stage]}
    elif ipus > 1:
        attributes[IPU_NUMBER] = ipu
        if strategy.pipelined:
            attributes[PIPELINE_STAGE] = number[stage]
    return replace(op, attributes=attributes)


def _check_ipus(options: Options, ipus: int) -> None:
    total = ipus * options.replication_factor
    rounded = 1 << (total - 1).bit_length()
    if total > _MOST_IPUS:
        raise Error(
            f"Too many IPUs requested ({total}). Experiments that need more than {_MOST_IPUS} IPUs need several "
            "processes, started with poprun-py"
        )
    if rounded == total or options.use_model:
        return
    if options.auto_round_num_ipus:
        warnings.warn(
            f"The model specifies the use of {total} IPUs, however PopTorch must reserve a minimum of {rounded}; "
            f"{rounded - total} of them will be idle",
            stacklevel=2,
        )
        return
    raise Error(
        f"The model specifies the use of {total} IPUs, however PopTorch must reserve a minimum of {rounded} in order "
        "to allow the model to run, because PopTorch must reserve a power of 2 or a multiple of 64 IPUs. Please "
        "reconfigure your model to use a different number of IPUs or set poptorch.Options().autoRoundNumIPUs(True)."
    )


def _check_depth(options: Options, stages: int, *, training: bool) -> None:
    accumulation, iterations = options.Training.gradient_accumulation, options.device_iterations
    if training and accumulation < 2 * stages - 1:
        raise Error(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of "
            f"pipeline stages ({2 * stages - 1}) when using poptorch.PipelinedExecution. Please note that a model "
            f"with {stages} pipeline stages in PopTorch will have an additional {stages - 1} stages when training."
        )
    if not training and iterations < stages:
        raise Error(
            "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline stages "
            f"({stages}) when using PopTorch.PipelinedExecution."
        )


# Options of the compiler


def _compile_options(
    trace: ModuleTrace, options: Options, rule: UpdateRule | None, ipus: int, stages: int
) -> CompileOptions:
    strategy, training = options._execution_strategy, rule is not None
    pipelined = strategy.pipelined and ipus > 1
    if pipelined:
        _check_depth(options, stages, training=training)
    settings = options.Training
    accumulation = int(settings.gradient_accumulation) if training else 1
    replicas = options.replication_factor * options.Distributed.numProcesses
    mode = PlacementMode.OFF if ipus == 1 else PlacementMode.MANUAL
    if strategy.phased and ipus > 1:
        mode = PlacementMode.EXECUTION_PHASES
    given = None
    if rule is not None and trace.loss is not None:
        trained = frozenset(name for name, grad in trace.parameters.items() if grad)
        scaler = LossScaler() if settings.auto_loss_scaling else None
        given = TrainingOptions(trace.loss, rule, scaler, trained)
    watched = bool(options.Precision.floating_point_exceptions)
    return CompileOptions(
        step=StepShape(int(options.device_iterations), accumulation, int(options.replication_factor)),
        anchors=_anchors(trace, options, training=training),
        training=given,
        replicas=replicas,
        reduction=_reduction(options),
        placement=PlacementOptions(mode, ipus),
        pipeline=PipelineOptions() if pipelined else None,
        locations=options.TensorLocations.locations(),
        recomputation=_recomputation(options, pipelined=pipelined and training),
        streams=HostStreams(synthetic=bool(options.enable_synthetic_data)),
        stochastic_rounding=bool(options.Precision.stochastic_rounding),
        fuse_elementwise=not watched,
        sync=options.sync_pattern.name,
    )


def _reduction(options: Options) -> GradientReduction:
    settings = options.Training
    if settings.accumulation_and_replication_reduction_type is ReductionType.Sum:
        return GradientReduction.SUM
    strategy = settings.meanAccumulationAndReplicationReductionStrategy
    running = strategy is MeanReductionStrategy.Running
    return GradientReduction.MEAN_RUNNING if running else GradientReduction.MEAN_POST


def _recomputation(options: Options, *, pipelined: bool) -> Recomputation:
    chosen = options._Popart.options.get("autoRecomputation")
    if chosen is None:
        return Recomputation.PIPELINE if pipelined else Recomputation.NONE
    names = {0: Recomputation.NONE, 1: Recomputation.STANDARD, 2: Recomputation.STANDARD, 3: Recomputation.PIPELINE}
    return names.get(int(chosen), Recomputation.STANDARD)


def _anchors(trace: ModuleTrace, options: Options, *, training: bool) -> tuple[Anchor, ...]:
    mode = output_mode(options, training=training)
    ids = dict.fromkeys(one for one in trace.outputs if isinstance(one, str))
    found = {id_: Anchor(id_, _RETURNS[mode], int(options.output_return_period)) for id_ in ids}
    found |= {id_: Anchor(id_, Return.ALL) for id_ in trace.changed_inputs.values() if id_ not in found}
    for short, (long, own, period) in options.anchored_tensors.items():
        asked = mode if own in (None, OutputMode.Default) else own
        if long in found:
            continue
        found[long] = Anchor(long, _RETURNS[asked], int(period))
        del short
    return tuple(found.values())


def check_session_options(options: Mapping[str, Any]) -> None:
    """Raise poptorch.Error for a name that is not a session option of PopART."""
    for key, value in options.items():
        name = str(key).split(".")[0]
        if name in _EFFECTLESS:
            continue
        kinds = {bool: "bool", int: "uint64", str: "string", float: "double", dict: "map", list: "vector"}
        kind = kinds.get(type(value))
        if kind is None:
            raise Error(f"Unknown value type {type(value)} for option {key}")
        raise Error(f"Unknown {kind} option {key}")
