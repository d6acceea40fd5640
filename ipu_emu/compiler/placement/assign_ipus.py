"""Assignment of IPUs: the IPU and the pipeline stage of each op, from the annotations of the model and the options.

MANUAL             the IPU that the annotation names
AUTO               the IPU and the stage that ``graph_balance`` gives, with work in the proportions of ``ratios``
GIVEN              the IPU and the stage that the options name for the op
EXECUTION_PHASES   phases take turns on the IPUs
pipelining         the stage that the annotation names, else the number of the IPU; adjacent stages on one IPU become
                   one stage
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ipu_emu.compiler.annotations import EXECUTION_PHASE, IPU_NUMBER, PIPELINE_STAGE
from ipu_emu.compiler.placement.graph_balance import MicroBatchWork, SharedWeights, balanced_places
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Place, Role
from ipu_emu.program.anchors import StepShape
from ipu_emu.program.schedules.schedule_table import schedule

_ONE_MICRO_BATCH = StepShape(1, 1, 1)


def assign_ipus(
    model: Graph,
    placement: PlacementOptions,
    pipeline: PipelineOptions | None = None,
    *,
    work: MicroBatchWork = MicroBatchWork.TRAINING,
    step: StepShape = _ONE_MICRO_BATCH,
) -> Graph:
    """Return ``model`` with the places of its ops; ``check_placement`` has rejected contradictory annotations before.

    Warn of a weight that AUTO or GIVEN does not keep on one IPU of a pipeline.
    """
    if placement.mode is PlacementMode.OFF:
        return model
    graph = model.copy()
    places = _Assignment(graph, _by_output(graph), placement, pipeline, work, step).places()
    pairs = {(stage, ipu) for ipu, stage in places.values()}
    merged = stage_numbers(pairs, merge=pipeline.iterations == 1) if pipeline else {}
    for index, op in enumerate(graph.ops):
        if (key := _key(op)) in places:
            ipu, stage = places[key]
            graph.ops[index] = replace(op, place=Place(merged.get(stage, 0), ipu))
    return graph


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


@dataclass(frozen=True)
class _Assignment:
    """A graph with its ``ops`` by their first output, whose (IPU, stage) are determined."""

    graph: Graph
    ops: Mapping[str, Op]
    placement: PlacementOptions
    pipeline: PipelineOptions | None
    work: MicroBatchWork
    step: StepShape

    def places(self) -> Mapping[str, tuple[int, int]]:
        """(IPU, stage) of each op."""
        ops, mode, ipus = self.ops, self.placement.mode, self.placement.ipus
        stages = {id: int(op.attributes[PIPELINE_STAGE]) for id, op in ops.items() if PIPELINE_STAGE in op.attributes}
        is_auto = mode is PlacementMode.AUTO and not (self.pipeline and stages)
        if is_auto or mode is PlacementMode.GIVEN:
            places = self._balanced() if is_auto else {id: self.placement.places[id] for id in ops}
            if self.pipeline:
                _warn_of_copies(self.graph, ops, places)
            return places
        if mode is PlacementMode.EXECUTION_PHASES:
            numbers = _by_phase(ops, min(ipus, self.placement.phase_ipus))
        elif mode is PlacementMode.MANUAL:
            numbers = {id: int(op.attributes.get(IPU_NUMBER, 0)) for id, op in ops.items()}
        else:
            numbers = {id: stages.get(id, 0) % ipus for id in ops}
        return {id: (ipu, stages.get(id, ipu)) for id, ipu in numbers.items()}

    def _balanced(self) -> dict[str, tuple[int, int]]:
        """The places by the compiler's choice; logits are with their table if the pipeline can have the stage."""
        ratios = self.placement.ratios or (1.0,) * self.placement.ipus
        # A weight that two stages read would change in the first while the second still needs its old value.
        continuous = self.pipeline and self._trains and self.step.accumulation == 1
        places: Sequence[tuple[int, int]] = ()
        for shared in (SharedWeights.TOGETHER,) if continuous else (SharedWeights.LOGITS_HOME, SharedWeights.COPIED):
            places = balanced_places(self.graph, ratios, work=self.work, shared=shared)
            if self.pipeline is None or self._can_run({stage: ipu for ipu, stage in places}, self.pipeline):
                break
        keys = map(_key, self.graph.ops)
        return {key: place for key, place in zip(keys, places, strict=True) if key in self.ops}

    def _can_run(self, ipus: Mapping[int, int], pipeline: PipelineOptions) -> bool:
        """Whether the schedule allows stages on these ``ipus`` with as many micro-batches as a step has."""
        trains, times, mapping = self._trains, pipeline.iterations, [ipus[stage] for stage in sorted(ipus)]
        count = self.step.micro_batches // times
        with suppress(EmulatorError):
            schedule(pipeline.schedule, len(ipus), count, training=trains, mapping=mapping, iterations=times)
            return True
        return False

    @property
    def _trains(self) -> bool:
        return self.work is not MicroBatchWork.INFERENCE


def _warn_of_copies(graph: Graph, ops: Mapping[str, Op], places: Mapping[str, tuple[int, int]]) -> None:
    for weight in graph.with_role(Role.WEIGHT):
        ipus = sorted({places[id][0] for id, op in ops.items() if weight.id in op.inputs})
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
