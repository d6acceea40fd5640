"""Assignment of IPUs: the IPU and the pipeline stage of each op, from the annotations of the model and the options.

MANUAL             the IPU that the annotation names
AUTO               chosen by work and memory, in the proportions of ``ratios``
GIVEN              the IPU and the stage that the options name for the op
EXECUTION_PHASES   phases take turns on the IPUs
pipelining         the stage that the annotation names, else the number of the IPU; adjacent stages on one IPU become
                   one stage
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

from ipu_emu.compiler.annotations import EXECUTION_PHASE, IPU_NUMBER, PIPELINE_STAGE
from ipu_emu.compiler.placement.autoshard import autoshard
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.graph import Graph, Op, Place, Role

__all__ = ["assign_ipus", "stage_numbers"]


def assign_ipus(
    model: Graph, placement: PlacementOptions, pipeline: PipelineOptions | None = None, *, continuous: bool = False
) -> Graph:
    """Return ``model`` with the places of its ops; ``check_placement`` has rejected contradictory annotations before.

    ``continuous``: weights change while micro-batches are in the pipeline. Warn of a weight that AUTO or GIVEN
    does not keep on one IPU of a pipeline.
    """
    if placement.mode is PlacementMode.OFF:
        return model
    graph = model.copy()
    numbers = _ipus(graph, placement, pipeline, continuous)
    stages = {id: _stage(op, id, placement, numbers[id]) for id, op in _by_output(graph).items()}
    pairs = {(stages[id], numbers[id]) for id in stages}
    merged = stage_numbers(pairs, merge=pipeline.iterations == 1) if pipeline else {}
    graph.ops = [
        replace(op, place=Place(merged.get(stages[key], 0), numbers[key])) if (key := _key(op)) in stages else op
        for op in graph.ops
    ]
    return graph


def _stage(op: Op, id: str, placement: PlacementOptions, ipu: int) -> int:
    if placement.mode is PlacementMode.GIVEN:
        return placement.places[id][1]
    return int(op.attributes.get(PIPELINE_STAGE, ipu))


def stage_numbers(pairs: set[tuple[int, int]], *, merge: bool = True) -> dict[int, int]:
    """Number the stages of ``pairs`` of (stage, IPU) from 0; return the new number of each stage.

    With ``merge``, adjacent stages on one IPU become one stage (IPU -1 means none).
    """
    ipus: dict[int, set[int]] = {}
    for stage, ipu in pairs:
        ipus.setdefault(stage, set()).add(ipu)
    numbers: dict[int, int] = {}
    before: set[int] = set()
    for stage in sorted(ipus):
        same = merge and len(ipus[stage]) == 1 and ipus[stage] == before and before != {-1}
        numbers[stage] = max(numbers.values(), default=-1) + (0 if same else 1)
        before = ipus[stage]
    return numbers


def _key(op: Op) -> str:
    return next(id for id in op.outputs if id)


def _by_output(graph: Graph) -> dict[str, Op]:
    """Return the ops by their first output, without those whose outputs are constants."""
    return {_key(op): op for op in graph.ops if any(_computed(graph, id) for id in op.outputs if id)}


def _computed(graph: Graph, id: str) -> bool:
    return graph.tensors[id].role is not Role.CONSTANT


def _ipus(
    graph: Graph, placement: PlacementOptions, pipeline: PipelineOptions | None, continuous: bool
) -> Mapping[str, int]:
    ops, ipus = _by_output(graph), placement.ipus
    if placement.mode is PlacementMode.EXECUTION_PHASES:
        return _by_phase(ops, min(ipus, placement.phase_ipus))
    if placement.mode is PlacementMode.GIVEN:
        given = {id: placement.places[id][0] for id in ops}
        if pipeline:
            _warn_of_copies(graph, ops, given)
        return given
    annotated = {id: int(op.attributes[IPU_NUMBER]) for id, op in ops.items() if IPU_NUMBER in op.attributes}
    if placement.mode is PlacementMode.MANUAL:
        return dict.fromkeys(ops, 0) | annotated
    if pipeline and any(PIPELINE_STAGE in op.attributes for op in ops.values()):
        return {id: int(op.attributes.get(PIPELINE_STAGE, 0)) % ipus for id, op in ops.items()}
    ratios = placement.ratios or (1.0,) * ipus
    # A weight that two stages read would change in the first while the second still needs its old value.
    apart = continuous and pipeline is not None
    chosen = dict(zip(ops, autoshard(graph, list(ops.values()), ratios, apart=apart), strict=True))
    if pipeline:
        _warn_of_copies(graph, ops, chosen)
    return chosen


def _warn_of_copies(graph: Graph, ops: Mapping[str, Op], chosen: Mapping[str, int]) -> None:
    for weight in graph.with_role(Role.WEIGHT):
        ipus = sorted({chosen[id] for id, op in ops.items() if weight.id in op.inputs})
        if len(ipus) > 1:
            warnings.warn(
                f"The weight {weight.id} is read on IPUs {', '.join(map(str, ipus))} of a pipeline, so every "
                "micro-batch copies it; place the ops that read it on one IPU with builder.virtualGraph and "
                "builder.pipelineStage to avoid that",
                stacklevel=2,
            )


def _by_phase(ops: Mapping[str, Op], ipus: int) -> dict[str, int]:
    """The execution phase of each op; without an annotation, that of its latest input."""
    phases: dict[str, int] = {}
    for op in ops.values():
        inherited = max((phases.get(id, 0) for id in op.inputs), default=0)
        phases |= dict.fromkeys(op.outputs, int(op.attributes.get(EXECUTION_PHASE, inherited)))
    return {id: phases[id] % max(ipus, 1) for id in ops}
