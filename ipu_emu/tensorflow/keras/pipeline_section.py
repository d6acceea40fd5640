"""Pipeline section: makes the steps of a model whose layers have stages a pipeline of the program."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tf_keras.src.engine import functional, sequential
from tf_keras.src.layers.normalization.batch_normalization import BatchNormalizationBase

from ipu_emu.tensorflow.keras.assignments import assignment_of, check_complete
from ipu_emu.tensorflow.keras.layer_calls import LayerCall
from ipu_emu.tensorflow.keras.options import ModelOptions
from ipu_emu.tensorflow.keras.pipeline_stages import stage_of
from ipu_emu.tensorflow.run.feeds.queues import OutfeedMode, OutfeedQueue
from ipu_emu.tensorflow.run.pipeline_arguments import StageFunction
from ipu_emu.tensorflow.run.pipeline_call import PipelineCall
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, PipelineSection, Section, is_resource

_log = logging.getLogger(__name__)


def is_pipelined(model: Any) -> bool:
    """Whether a layer of the model has a stage."""
    if model.__dict__.get("_ipu_stages"):
        return True
    layers = list(model._flatten_layers(include_self=False, recursive=False))
    if any(stage_of(layer) is not None for layer in layers):
        return True
    return isinstance(model, functional.Functional) and any(
        stage_of(node) is not None for layer in layers for node in layer._inbound_nodes
    )


def stages_of(model: Any) -> dict[tuple[int, int], int]:
    """The stage of every call of a layer, by the id of the layer and the number of the call; checked."""
    assignments = assignment_of(model)
    check_complete(model, assignments)
    by_node = {(id(entry.layer), getattr(entry, "node_index", 0)): entry.pipeline_stage for entry in assignments}
    if isinstance(model, sequential.Sequential) or not isinstance(model, functional.Functional):
        return by_node
    stages: dict[tuple[int, int], int] = {}
    seen: dict[int, int] = {}
    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            if not node.is_input:
                layer = id(node.layer)
                number = seen.setdefault(layer, 0)
                seen[layer] = number + 1
                stages[layer, number] = by_node[layer, node.layer._inbound_nodes.index(node)]
    return stages


def mapping_of(options: ModelOptions, stages: int) -> list[int]:
    """The IPU of each stage."""
    return list(range(stages)) if options.device_mapping is None else list(options.device_mapping)


def pipeline_section(
    trace: FunctionTrace,
    section: Section,
    options: ModelOptions,
    stages: dict[tuple[int, int], int],
    calls: Sequence[LayerCall],
    *,
    trains: bool,
) -> PipelineSection:
    """Describe the ops of ``section`` as a pipeline; ``calls`` have the ranges of ops of the stages."""
    count = max(stages.values()) + 1
    mapping = mapping_of(options, count)
    if trains:
        _warn_of_batch_norms(calls)
    ranges = [(call.start, call.end, stage, mapping[stage]) for call in calls for stage in [_stage(stages, call)]]
    functions = [
        StageFunction(f"stage {stage}", variables=_variables(trace, ranges, stage)) for stage in range(count)
    ]
    pipeline = PipelineCall(
        functions,
        section.accumulation,
        repeat_count=section.batches,
        device_mapping=mapping,
        optimizer_function=_optimises if trains else None,
        outfeed_queue=OutfeedQueue(OutfeedMode.ALL),
        reduction_method=section.reduction,
        late=True,
        **{name: value for name, value in options.pipelining.items() if value is not None},
    )
    section.offload = pipeline.offload_weight_update_variables
    section.shard_states = pipeline.replicated_optimizer_state_sharding
    return PipelineSection(pipeline, tuple(sorted(ranges, key=lambda entry: (entry[2], entry[0]))), by_inputs=True)


def _warn_of_batch_norms(calls: Sequence[LayerCall]) -> None:
    names = [call.layer.name for call in calls if isinstance(call.layer, BatchNormalizationBase)]
    if names:
        _log.warning(
            "%s: a batch normalisation in a pipeline takes the statistics of each mini-batch, not of the batch of a "
            "weight update; a group or layer normalisation does not depend on either",
            ", ".join(names),
        )


def _stage(stages: dict[tuple[int, int], int], call: LayerCall) -> int:
    """The stage of a call; a call without a stage has that of the layer's first call."""
    stage = stages.get((id(call.layer), call.number))
    return stages[id(call.layer), 0] if stage is None else stage


def _optimises() -> None:
    """A placeholder for the optimiser function in the checks of a pipeline call."""


def _variables(trace: FunctionTrace, ranges: Sequence[tuple[int, int, int, int]], stage: int) -> tuple[str, ...]:
    """The variables that the ops of a stage use, by the names of their tensors in the trace."""
    resources = {inner.name for outer, inner in trace.captures() if is_resource(outer)}
    everything = trace.graph.get_operations()
    return tuple(
        dict.fromkeys(
            tensor.name
            for start, end, owner, _ in ranges
            if owner == stage
            for op in everything[start:end]
            for tensor in op.inputs
            if tensor.name in resources
        )
    )
