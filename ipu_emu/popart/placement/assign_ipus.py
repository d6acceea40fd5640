"""Places: which IPU and which stage of the pipeline each op of a model runs on, from its annotations and the options.

Manual            the IPU that the user said
Auto              chosen by work and memory, in the proportions of virtualGraphSplitRatios
ExecutionPhases   phases take turns on the IPUs
pipelining        the stage that the user said, else the IPU; neighbouring stages on one IPU are one
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

from ipu_emu.compiler.placement.autoshard import autoshard
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Place, Role
from ipu_emu.popart.builder.annotations import IPU_NUMBER, PHASE, PIPELINE_STAGE
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.types.enums import VirtualGraphMode

__all__ = ["placed", "stage_numbers"]


def placed(model: Graph, options: SessionOptions, ipus: int, *, training: bool = True) -> Graph:
    """``model`` with the places of its ops; annotations that contradict each other have been refused before.

    Warn of a weight that Auto could not keep on one IPU of a pipeline.
    """
    if not options.usesVirtualGraphs():
        return model
    graph = model.copy()
    numbers = _ipus(graph, options, ipus, training)
    stages = {id: int(op.attributes.get(PIPELINE_STAGE, numbers[id])) for id, op in _by_output(graph).items()}
    merge = options.pipelineBatchSerialization == 1
    pairs = {(stages[id], numbers[id]) for id in stages}
    merged = stage_numbers(pairs, merge=merge) if options.enablePipelining else {}
    graph.ops = [
        replace(op, place=Place(merged.get(stages[key], 0), numbers[key])) if (key := _key(op)) in stages else op
        for op in graph.ops
    ]
    return graph


def stage_numbers(pairs: set[tuple[int, int]], *, merge: bool = True) -> dict[int, int]:
    """The stages of ``pairs`` of stage and IPU, numbered anew.

    With ``merge`` neighbours on one IPU are one (-1 is no IPU).
    """
    ipus: dict[int, set[int]] = {}
    for stage, ipu in pairs:
        ipus.setdefault(stage, set()).add(ipu)
    numbers: dict[int, int] = {}
    before: set[int] = set()
    for stage in sorted(ipus):
        again = merge and len(ipus[stage]) == 1 and ipus[stage] == before and before != {-1}
        numbers[stage] = max(numbers.values(), default=-1) + (0 if again else 1)
        before = ipus[stage]
    return numbers


def _key(op: Op) -> str:
    return next(id for id in op.outputs if id)


def _by_output(graph: Graph) -> dict[str, Op]:
    """Ops by the first tensor that they make, without those that are known when the model is compiled."""
    return {_key(op): op for op in graph.ops if any(_computed(graph, id) for id in op.outputs if id)}


def _computed(graph: Graph, id: str) -> bool:
    return graph.tensors[id].role is not Role.CONSTANT


def _ipus(graph: Graph, options: SessionOptions, ipus: int, training: bool) -> Mapping[str, int]:
    ops = _by_output(graph)
    if options.virtualGraphMode is VirtualGraphMode.ExecutionPhases:
        return _by_phase(ops, min(ipus, options.executionPhaseSettings.stages))
    annotated = {id: int(op.attributes[IPU_NUMBER]) for id, op in ops.items() if IPU_NUMBER in op.attributes}
    if options.virtualGraphMode is not VirtualGraphMode.Auto:
        return dict.fromkeys(ops, 0) | annotated
    if options.enablePipelining and any(PIPELINE_STAGE in op.attributes for op in ops.values()):
        return {id: int(op.attributes.get(PIPELINE_STAGE, 0)) % ipus for id, op in ops.items()}
    ratios = _ratios(options, ipus)
    # Without accumulation a weight of two stages would change while one of them waits for the other.
    apart = training and options.enablePipelining and options.accumulation() == 1
    chosen = dict(zip(ops, autoshard(graph, list(ops.values()), ratios, apart=apart), strict=True))
    if options.enablePipelining:
        _warn_of_copies(graph, ops, chosen)
    return chosen


def _warn_of_copies(graph: Graph, ops: Mapping[str, Op], chosen: Mapping[str, int]) -> None:
    for weight in graph.with_role(Role.WEIGHT):
        homes = sorted({chosen[id] for id, op in ops.items() if weight.id in op.inputs})
        if len(homes) > 1:
            warnings.warn(
                f"The weight {weight.id} is read on IPUs {', '.join(map(str, homes))} of a pipeline, so every "
                "micro-batch copies it; place what reads it on one IPU with builder.virtualGraph and "
                "builder.pipelineStage to avoid that",
                stacklevel=2,
            )


def _ratios(options: SessionOptions, ipus: int) -> list[float]:
    """The share of each IPU; raise EmulatorError for shares that cannot be."""
    given = list(options.virtualGraphSplitRatios) or [1.0] * ipus
    if len(given) != ipus or not all(isinstance(one, int | float) and one > 0 for one in given):
        raise EmulatorError(
            f"virtualGraphSplitRatios is {given}, and a replica has {ipus} IPUs; give one number above 0 for each"
        )
    return given


def _by_phase(ops: Mapping[str, Op], ipus: int) -> dict[str, int]:
    """An op without a phase runs in that of the latest of its inputs."""
    phases: dict[str, int] = {}
    for op in ops.values():
        inherited = max((phases.get(id, 0) for id in op.inputs), default=0)
        phases |= dict.fromkeys(op.outputs, int(op.attributes.get(PHASE, inherited)))
    return {id: phases[id] % max(ipus, 1) for id in ops}
