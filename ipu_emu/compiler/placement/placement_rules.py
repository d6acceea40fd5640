"""Placement rules: which annotations of virtual graphs and pipeline stages a model may have.

Models that cannot run are refused with PopART's messages. Source: PopART 3.4, ``willow/src/ir.cpp`` and
``willow/src/transforms/pipeline.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipu_emu.compiler.annotations import IPU_NUMBER, PIPELINE_STAGE
from ipu_emu.compiler.placement.assign_ipus import stage_numbers
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.program.anchors import StepShape


def check_placement(
    model: Graph,
    placement: PlacementOptions,
    pipeline: PipelineOptions | None,
    step: StepShape,
    *,
    training: bool,
) -> None:
    """Raise EmulatorError if annotations and options contradict each other."""
    ops = computed_ops(model)
    if placement.mode is PlacementMode.MANUAL:
        _check_all_annotated(ops)
    if pipeline is not None:
        _PipelineRules(model, ops, placement, pipeline, step, training).check()


def check_ipus_exist(model: Graph, ipus: int) -> None:
    """Raise EmulatorError for the first op that is placed on an IPU which a replica does not have."""
    for op in model.ops:
        number = op.attributes.get(IPU_NUMBER)
        if number is not None and not 0 <= int(number) < ipus:
            raise EmulatorError(
                f"{op.label} has been assigned to an invalid virtual graph {number}. numIPUs = {ipus}."
            )


def computed_ops(model: Graph) -> list[Op]:
    """Return the ops with outputs that are not constant."""
    return [op for op in model.ops if any(model.tensors[id].role is not Role.CONSTANT for id in op.outputs if id)]


def ipu_annotated(op: Op) -> int:
    """Return the IPU that the annotation of an op names, -1 for none."""
    return int(op.attributes.get(IPU_NUMBER, -1))


def ipus_that_read(ops: Sequence[Op], id: str) -> set[int]:
    """Return the annotated IPUs of the ops that read ``id``."""
    return {ipu_annotated(op) for op in ops if id in op.inputs}


def _check_all_annotated(ops: Sequence[Op]) -> None:
    counts: dict[int, int] = {}
    for op in ops:
        counts[ipu_annotated(op)] = counts.get(ipu_annotated(op), 0) + 1
    if ops and all(number < 0 for number in counts):
        raise EmulatorError(
            "SessionOptions flag virtualGraphMode is VirtualGraphMode::Manual, but no Ops have been annotated with "
            "virtual graph information. This is an inconsistent combination. "
        )
    if -1 in counts:
        lines = [f"  {'none' if number < 0 else number} : {count}" for number, count in sorted(counts.items())]
        raise EmulatorError(
            "Either all Ops must have their virtual graph ids set, or none must. Op count per virtual graph id\n"
            + "\n".join(lines)
        )


@dataclass(frozen=True)
class _PipelineRules:
    """The checks of one pipelined model, in PopART's order."""

    model: Graph
    ops: Sequence[Op]
    placement: PlacementOptions
    pipeline: PipelineOptions
    step: StepShape
    training: bool

    def check(self) -> None:
        self.check_annotated()
        self.check_ipus()
        self.check_calls()
        forward = self.forward_stages()
        self.check_depth(2 * forward - 1 if self.training else forward)
        self.check_order()
        self.check_variables()

    @property
    def annotated(self) -> bool:
        return any(PIPELINE_STAGE in op.attributes for op in self.ops)

    def check_annotated(self) -> None:
        missing = [op.label for op in self.ops if PIPELINE_STAGE not in op.attributes]
        if self.annotated and missing:
            raise EmulatorError(
                "Only some ops have had their pipeline stage set. Ops missing the pipeline stage:\n"
                + "\n".join(missing)
            )
        for op in self.ops:
            if int(op.attributes.get(PIPELINE_STAGE, 0)) < 0:
                raise EmulatorError(f"Op has bad pipeline stage {op.attributes[PIPELINE_STAGE]}")

    def stage(self, op: Op) -> int:
        """Return the stage of an op: its own, or without any annotation of stages its IPU."""
        return int(op.attributes.get(PIPELINE_STAGE, op.attributes.get(IPU_NUMBER, 0)))

    def check_ipus(self) -> None:
        by_stage: dict[int, dict[int, list[str]]] = {}
        for op in self.ops:
            by_stage.setdefault(self.stage(op), {}).setdefault(ipu_annotated(op), []).append(op.label)
        for stage, ipus in by_stage.items():
            several = self.pipeline.concurrent_stages or self.pipeline.sharded_stages
            if len(ipus) > 1 and not several:
                names = ", ".join(name for group in ipus.values() for name in group)
                raise EmulatorError(
                    f"Ops {names} have the same pipeline stage {stage}, but different virtual graph ids "
                    f"{', '.join(str(id) for id in sorted(ipus))}. All ops with the same pipeline stage must also "
                    "have the same virtual graph id"
                )
        count = len(by_stage)
        for stage in range(max(by_stage, default=-1) + 1):
            if stage not in by_stage:
                raise EmulatorError(
                    f"The set of pipeline stages for all Ops contains {count} stages, but stage {stage} is missing"
                )

    def check_calls(self) -> None:
        """Check that the ops of called subgraphs are on the IPUs of their calls."""
        if self.placement.mode is not PlacementMode.MANUAL:
            return
        for call in (op for op in self.ops if op.type == "Call"):
            body = call.attributes["callee"]
            for op in computed_ops(body):
                if IPU_NUMBER not in op.attributes:
                    raise EmulatorError(
                        f'Op {op.label} in subgraph "{body.name}" does not have a virtual graph id. When pipelining, '
                        "subgraph ops must have a virtual graph id set."
                    )
                if ipu_annotated(op) != ipu_annotated(call):
                    raise EmulatorError(
                        f'The virtual graph id ({ipu_annotated(op)}) for Op {op.label} in subgraph "{body.name}" '
                        f"does not match the virtual graph id ({ipu_annotated(call)}) of its calling op {call.label}."
                    )

    def forward_stages(self) -> int:
        """Count the stages of the forward pass; adjacent stages on one IPU count once."""
        if self.placement.mode is PlacementMode.AUTO and not self.annotated:
            return self.placement.ipus
        pairs = {(self.stage(op), ipu_annotated(op)) for op in self.ops}
        if self.placement.mode is PlacementMode.GIVEN:
            pairs = {(stage, ipu) for ipu, stage in self.placement.places.values()}
        numbers = stage_numbers(pairs, merge=self.pipeline.iterations == 1)
        return 1 + max(numbers.values(), default=-1)

    def check_depth(self, stages: int) -> None:
        """Check the popart schedule; the other schedules check the number of micro-batches when they are built."""
        if self.pipeline.schedule != "popart":
            return
        accumulates = self.training and (self.pipeline.accumulates or self.step.accumulation > 1)
        depth = self.step.accumulation if accumulates else self.step.batches
        if depth < stages:
            what = "gradient accumulation factor" if accumulates else "batchesPerStep"
            raise EmulatorError(
                f"For pipelining, depth ({what}) must equal at least the number of pipeline stages ({stages})"
            )

    def check_order(self) -> None:
        producers = {output: op for op in self.ops for output in op.outputs if output}
        for op in self.ops:
            for id in op.inputs:
                producer = producers.get(id)
                if producer is not None and self.stage(producer) > self.stage(op):
                    raise EmulatorError(
                        f"Tensor {id} is consumed in an earlier pipeline stage than it is produced.\n"
                        f"Producer: {producer.label}, pipeline stage {self.stage(producer)}\n"
                        f"Consumer: {op.label}, pipeline stage {self.stage(op)}"
                    )
                self.check_concurrent(id, producer, op)

    def check_concurrent(self, id: str, producer: Op | None, op: Op) -> None:
        """Check that parts of a stage that work at the same time do not read each other's results."""
        if producer is None or self.stage(producer) != self.stage(op) or self.pipeline.sharded_stages:
            return
        if ipu_annotated(producer) != ipu_annotated(op):
            raise EmulatorError(
                f"{op.label} on virtual graph {ipu_annotated(op)} reads {id}, which {producer.label} of the same "
                f"pipeline stage {self.stage(op)} makes on virtual graph {ipu_annotated(producer)}, but concurrent "
                "parts of a stage work at the same time; use one virtual graph, or a later stage"
            )

    def check_variables(self) -> None:
        for tensor in self.model.with_role(Role.WEIGHT):
            if len(ipus_that_read(self.ops, tensor.id)) > 1:
                raise EmulatorError(
                    f"Can not copy variable tensor {tensor.id} between virtual graphs when pipelining. All pipeline "
                    "stages using this tensor should be on the same graph."
                )
