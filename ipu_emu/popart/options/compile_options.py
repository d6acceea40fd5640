"""Compile options of a session: SessionOptions, DataFlow and a model's properties as options of the compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipu_emu.compiler.memory.tensor_locations import LocationRule, ShardingDomain, StorageChoice, TensorLocations
from ipu_emu.compiler.options import CompileOptions, HostStreams, TrainingOptions
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.errors import EmulatorError
from ipu_emu.hostio import DataMode, mode_of
from ipu_emu.onnx.properties import ModelProperties
from ipu_emu.popart.options import tensor_location
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.input_settings import staged_inputs
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.types.enums import (
    ReplicatedTensorSharding,
    SyntheticDataMode,
    TensorStorage,
    VirtualGraphMode,
)
from ipu_emu.program.anchors import StepShape

__all__ = ["compile_options", "data_mode", "step_shape", "synthetic_values", "with_streams"]

_MODES = {
    VirtualGraphMode.Off: PlacementMode.OFF,
    VirtualGraphMode.Manual: PlacementMode.MANUAL,
    VirtualGraphMode.Auto: PlacementMode.AUTO,
    VirtualGraphMode.ExecutionPhases: PlacementMode.EXECUTION_PHASES,
}


def step_shape(options: SessionOptions, flow: DataFlow) -> StepShape:
    """Return batches per step, accumulation factor and local replicas."""
    return StepShape(flow.batchesPerStep(), options.accumulation(), options.localReplicas())


def compile_options(
    options: SessionOptions,
    flow: DataFlow,
    properties: ModelProperties,
    *,
    ipus: int,
    training: TrainingOptions | None = None,
) -> CompileOptions:
    """Return the options that determine the graph of a step; a replica has ``ipus`` IPUs.

    Raise EmulatorError for invalid values.
    """
    return CompileOptions(
        step=step_shape(options, flow),
        anchors=tuple(flow.art(id).anchor(id) for id in flow.anchors()),
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
    flow: DataFlow,
    properties: ModelProperties,
    inputs: Sequence[str],
) -> CompileOptions:
    """Return ``base`` with the options that determine the program of a step: host I/O and the size of buckets."""
    ahead = properties.overlapped
    staged = staged_inputs(inputs, options, ahead)
    streams = HostStreams(properties.broadcast, ahead, staged, data_mode(options) is DataMode.SYNTHETIC)
    return replace(base, step=step_shape(options, flow), streams=streams, bucket_bytes=options.bucketBytes())


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
    given = list(options.virtualGraphSplitRatios) or [1.0] * ipus
    if len(given) != ipus or not all(isinstance(one, int | float) and one > 0 for one in given):
        raise EmulatorError(
            f"virtualGraphSplitRatios is {given}, and a replica has {ipus} IPUs; give one number above 0 for each"
        )
    return tuple(given)


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
