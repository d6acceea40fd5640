"""Compile options of a session: SessionOptions and a model's properties as options of the compiler."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from numbers import Integral

from ipu_emu.compiler.memory.tensor_locations import LocationRule, ShardingDomain, StorageChoice, TensorLocations
from ipu_emu.compiler.optimisers.automatic_loss_scaling import LossScaler, Tracking
from ipu_emu.compiler.options import CompileOptions, HostStreams, TrainingOptions
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.errors import EmulatorError
from ipu_emu.hostio import DataMode, mode_of
from ipu_emu.onnx.properties import ModelProperties
from ipu_emu.program.anchors import Anchor, StepShape
from ipu_emu.session.options import tensor_location
from ipu_emu.session.options.option_enums import (
    ReplicatedTensorSharding,
    SyntheticDataMode,
    TensorStorage,
    VirtualGraphMode,
)
from ipu_emu.session.options.session_options import SessionOptions
from ipu_emu.session.options.tuning_enums import GradientTensorTrackingMethod
from popdist_py.environment import EXECUTABLE_CACHE_PATH

#: Variables that name the folder of saved executables, by priority; the launcher sets the first.
_CACHE_VARIABLES = (EXECUTABLE_CACHE_PATH, "POPXL_CACHE_DIR", "POPART_CACHE_DIR")
_TRACKING = {
    GradientTensorTrackingMethod.AllNonViewChangingGradientTensors: Tracking.ALL,
    GradientTensorTrackingMethod.ConvAndMatmulGradients: Tracking.PRODUCTS,
    GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors: Tracking.NAMED,
}
_MODES = {
    VirtualGraphMode.Off: PlacementMode.OFF,
    VirtualGraphMode.Manual: PlacementMode.MANUAL,
    VirtualGraphMode.Auto: PlacementMode.AUTO,
    VirtualGraphMode.ExecutionPhases: PlacementMode.EXECUTION_PHASES,
}


def compile_options(
    options: SessionOptions,
    batches: int,
    anchors: Iterable[Anchor],
    properties: ModelProperties,
    *,
    ipus: int,
    training: TrainingOptions | None = None,
) -> CompileOptions:
    """Return the options that determine the graph of a step of ``batches``; a replica has ``ipus`` IPUs.

    Raise EmulatorError for invalid values.
    """
    return CompileOptions(
        step=StepShape(batches, options.accumulation(), options.localReplicas()),
        anchors=tuple(anchors),
        training=training,
        replicas=options.getGlobalReplicationFactor(),
        reduction=options.reduction(),
        placement=_placement(options, ipus),
        pipeline=_pipeline(options),
        locations=_locations(options, properties),
        recomputation=options.recomputation(),
        preload=options.preloads(),
        stochastic_rounding=bool(options.enableStochasticRounding),
        strided_groups=bool(options.groupNormStridedChannelGrouping),
        fuse_elementwise=not options.enableFloatingPointChecks,
    )


def with_streams(
    base: CompileOptions,
    options: SessionOptions,
    batches: int,
    properties: ModelProperties,
    inputs: Iterable[str],
    *,
    sync: str = "Full",
) -> CompileOptions:
    """Return ``base`` with the options that determine the program of a step: host I/O and the size of buckets."""
    ahead = properties.overlapped
    staged = _staged_inputs(inputs, options, ahead)
    streams = HostStreams(properties.broadcast, ahead, staged, data_mode(options) is DataMode.SYNTHETIC)
    step = StepShape(batches, options.accumulation(), options.localReplicas())
    return replace(base, step=step, streams=streams, bucket_bytes=options.bucketBytes(), sync=sync)


def _staged_inputs(ids: Iterable[str], options: SessionOptions, overlapped: Collection[str]) -> dict[str, int]:
    """The number of buffers in Streaming Memory of each buffered input; raise EmulatorError for an invalid depth.

    Pipelines use at most two. Inputs of depth 1, and those that I/O tiles load ``overlapped``, have none.
    """
    depths = {id: options.bufferingDepthMap.get(id, options.defaultBufferingDepth) for id in ids}
    for id, depth in depths.items():
        if isinstance(depth, bool) or not isinstance(depth, Integral) or depth < 1:
            raise EmulatorError(f"The buffering depth of {id} is {depth!r}; give a number of micro-batches above 0")
    if not options.enablePrefetchDatastreams:
        return {}
    most = 2 if options.enablePipelining else max(depths.values(), default=1)
    return {id: int(min(depth, most)) for id, depth in depths.items() if depth > 1 and id not in overlapped}


def loss_scaler(options: SessionOptions) -> LossScaler | None:
    """Return the settings of automatic loss scaling, if it is enabled."""
    settings = options.automaticLossScalingSettings
    if not settings.enabled:
        return None
    return LossScaler(
        settings.binEdgeLocation,
        settings.thresholdUpperCountProportion,
        settings.updatePeriod,
        _TRACKING[settings.gradientTensorTrackingMethod],
        tuple(settings.toTrackTensors or ()),
    )


def cache_folder(chosen: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the folder of saved executables, of the environment or else ``chosen``; None without caching."""
    for name in _CACHE_VARIABLES:
        if environment.get(name):
            return environment[name]
    return chosen


def data_mode(options: SessionOptions) -> DataMode:
    """Return the source of a session's step data, from its options or else from the environment."""
    return mode_of(os.environ) if synthetic_values(options) is None else DataMode.SYNTHETIC


def synthetic_values(options: SessionOptions) -> str | None:
    """Return the values of synthetic data; None if the environment decides."""
    mode = options.syntheticDataMode
    return None if mode is SyntheticDataMode.Off else mode.name


def _placement(options: SessionOptions, ipus: int) -> PlacementOptions:
    mode = _MODES[VirtualGraphMode(options.virtualGraphMode)]
    ratios = _ratios(options, ipus) if mode is PlacementMode.AUTO else ()
    return PlacementOptions(mode, ipus, ratios, int(options.executionPhaseSettings.stages))


def _ratios(options: SessionOptions, ipus: int) -> tuple[float, ...]:
    """Return the share of the work of each IPU; raise EmulatorError for invalid ratios."""
    ratios = list(options.virtualGraphSplitRatios) or [1.0] * ipus
    if len(ratios) != ipus or not all(isinstance(ratio, int | float) and ratio > 0 for ratio in ratios):
        raise EmulatorError(
            f"virtualGraphSplitRatios is {ratios}, and a replica has {ipus} IPUs; give one number above 0 for each"
        )
    return tuple(ratios)


def _pipeline(options: SessionOptions) -> PipelineOptions | None:
    if not options.enablePipelining:
        return None
    return PipelineOptions(
        options.pipelineSchedule,
        options.pipelineBatchSerialization,
        options.pipelineConcurrentStages,
        options.pipelineShardedStages,
        bool(options.enableGradientAccumulation),
    )


def _locations(options: SessionOptions, properties: ModelProperties) -> TensorLocations:
    by_id: Mapping[str, tensor_location.TensorLocation] = options.tensorLocationSettingsOverride
    return TensorLocations(
        weights=_rule(options.weightTensorLocationSettings),
        states=_rule(options.optimizerStateTensorLocationSettings),
        accumulators=_rule(options.accumulatorTensorLocationSettings),
        activations=_rule(options.activationTensorLocationSettings),
        by_id={id: _location(location) for id, location in by_id.items()},
        read_from_all=properties.read_from_all,
    )


def _rule(settings: tensor_location.TensorLocationSettings) -> LocationRule:
    return LocationRule(
        _location(settings.location),
        int(settings.minElementsForOffChip),
        int(settings.minElementsForReplicatedTensorSharding),
    )


def _location(location: tensor_location.TensorLocation) -> StorageChoice:
    group = location.shardingDomain
    return StorageChoice(
        off_chip=location.storage is TensorStorage.OffChip,
        sharded=location.replicatedTensorSharding is ReplicatedTensorSharding.On,
        domain=ShardingDomain(group.type.name),
        domain_size=int(group.replicaGroupSize),
    )
