"""Pipeline rules: what the annotations and options of a pipelined model must agree on.

What cannot run is refused with PopART's words. Source: PopART 3.4, ``willow/src/transforms/pipeline.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ipu_emu.compiler.step_graph import Reduction
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.popart.builder.annotations import IPU_NUMBER, PIPELINE_STAGE
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.placement.assign_ipus import stage_numbers
from ipu_emu.popart.types.enums import AnchorReturnTypeId, VirtualGraphMode

__all__ = ["PipelineRules"]

_RECOMPUTE = "__recompute_output_in_backward_pass"


class PipelineRules:
    """The checks of one pipelined model, in PopART's order."""

    def __init__(
        self,
        model: Graph,
        ops: Sequence[Op],
        options: SessionOptions,
        flow: DataFlow,
        training: bool,
        ipus: int,
    ) -> None:
        self.model, self.ops, self.options, self.flow, self.training, self.ipus = (
            model,
            ops,
            options,
            flow,
            training,
            ipus,
        )
        self.explicit = options.pipelinesExplicitly()
        self.annotated = any(PIPELINE_STAGE in op.attributes for op in ops)

    def checked(self) -> tuple[int, int]:
        """Stages of the forward pass, and of all of a step; raise EmulatorError for the first rule that is broken."""
        self.check_modes()
        self.check_annotated()
        self.check_graphs()
        forward = self.forward_stages()
        stages = 2 * forward - 1 if self.training else forward
        self.check_depth(stages)
        self.check_order()
        self.check_variables()
        self.check_streams()
        self.check_anchors()
        self.check_updates()
        self.check_batch_serialisation()
        return forward, stages

    def check_modes(self) -> None:
        options = self.options
        wanted = {
            "useHostCopyOps": options.useHostCopyOps,
            "enableExplicitMainLoops": options.enableExplicitMainLoops,
            "explicitRecomputation": options.explicitRecomputation,
        }
        # Any of the two that say how loops and copies are made asks for explicit pipelining.
        if options.useHostCopyOps or options.enableExplicitMainLoops:
            for name, given in wanted.items():
                if not given:
                    raise EmulatorError(f"SessionOption '{name}' must be true.")
        off = options.virtualGraphMode is VirtualGraphMode.Off
        if self.explicit and off:
            raise EmulatorError(
                "Pipelining requires the 'virtualGraphMode' session option to not be VirtualGraphMode::Off."
            )
        one = self.ipus == 1 and options.pipelineBatchSerialization == 1
        if not self.explicit and (off or one):
            mode = VirtualGraphMode(options.virtualGraphMode).name
            raise EmulatorError(
                f"Pipelining requires more than 1 IPU (currently {self.ipus}) and the 'virtualGraphMode' session "
                f"option to not be VirtualGraphMode::Off (currently VirtualGraphMode::{mode})."
            )
        self.check_forward_only()

    def check_forward_only(self) -> None:
        if not self.options.createImplicitPipeliningFwdOnlyProgram or not self.training:
            return
        why = ""
        if self.explicit:
            why = "with explicit pipelining."
        elif not self.options.enableGradientAccumulation:
            why = "without gradient accumulation."
        if why:
            raise EmulatorError(f"Implicit pipelining forward-only program is not supported {why}")

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
        if not self.explicit and any(_RECOMPUTE in op.attributes for op in self.ops):
            raise EmulatorError("When pipelining is enabled, user annotation for recomputation is not allowed")

    def stage(self, op: Op) -> int:
        """The stage of an op: its own, or without any annotation of stages its virtual graph."""
        return int(op.attributes.get(PIPELINE_STAGE, op.attributes.get(IPU_NUMBER, 0)))

    def graph_of(self, op: Op) -> int:
        return int(op.attributes.get(IPU_NUMBER, -1))

    def check_graphs(self) -> None:
        by_stage: dict[int, dict[int, list[str]]] = {}
        for op in self.ops:
            by_stage.setdefault(self.stage(op), {}).setdefault(self.graph_of(op), []).append(op.label)
        for stage, graphs in by_stage.items():
            several = self.options.pipelineConcurrentStages or self.options.pipelineShardedStages
            if len(graphs) > 1 and not several:
                names = ", ".join(name for group in graphs.values() for name in group)
                raise EmulatorError(
                    f"Ops {names} have the same pipeline stage {stage}, but different virtual graph ids "
                    f"{', '.join(str(id) for id in sorted(graphs))}. All ops with the same pipeline stage must also "
                    "have the same virtual graph id"
                )
        count = len(by_stage)
        for stage in range(max(by_stage, default=-1) + 1):
            if stage not in by_stage:
                raise EmulatorError(
                    f"The set of pipeline stages for all Ops contains {count} stages, but stage {stage} is missing"
                )

    def forward_stages(self) -> int:
        """Stages of the forward pass, neighbours on one virtual graph counted once."""
        if self.options.virtualGraphMode is VirtualGraphMode.Auto and not self.annotated:
            return self.ipus
        pairs = {(self.stage(op), self.graph_of(op)) for op in self.ops}
        numbers = stage_numbers(pairs, merge=self.options.pipelineBatchSerialization == 1)
        return 1 + max(numbers.values(), default=-1)

    def check_depth(self, stages: int) -> None:
        """The other schedules have rules of their own, which the compiler checks."""
        if self.options.pipelineSchedule != "popart":
            return
        accumulates = self.training and self.options.accumulation() > 1
        depth = self.options.accumulation() if accumulates else self.flow.batchesPerStep()
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
        """Parts of a stage that work at the same time read nothing of each other."""
        if producer is None or self.stage(producer) != self.stage(op) or self.options.pipelineShardedStages:
            return
        if self.graph_of(producer) != self.graph_of(op):
            raise EmulatorError(
                f"{op.label} on virtual graph {self.graph_of(op)} reads {id}, which {producer.label} of the same "
                f"pipeline stage {self.stage(op)} makes on virtual graph {self.graph_of(producer)}, but concurrent "
                "parts of a stage work at the same time; use one virtual graph, or a later stage"
            )

    def graphs_that_read(self, id: str) -> set[int]:
        return {self.graph_of(op) for op in self.ops if id in op.inputs}

    def check_variables(self) -> None:
        for tensor in self.model.with_role(Role.WEIGHT):
            if len(self.graphs_that_read(tensor.id)) > 1:
                raise EmulatorError(
                    f"Can not copy variable tensor {tensor.id} between virtual graphs when pipelining. All pipeline "
                    "stages using this tensor should be on the same graph."
                )

    def check_streams(self) -> None:
        if self.explicit:
            return
        for tensor in self.model.with_role(Role.INPUT):
            if len(self.graphs_that_read(tensor.id)) > 1:
                raise EmulatorError("For pipelining, stream tensors can only be streamed directly onto a single IPU")

    def check_anchors(self) -> None:
        if any(self.flow.art(id).id() is AnchorReturnTypeId.EveryN for id in self.flow.anchors()):
            raise EmulatorError(
                "[Explicit Pipeline] Cannot execute when an anchor has AnchorReturnType 'EveryN'"
                if self.explicit
                else "AnchorReturnType::EVERYN is not valid for pipelined models"
            )

    def check_updates(self) -> None:
        """Without accumulation weights change while the pipeline is full, which not everything stands."""
        if not self.training or self.options.enableGradientAccumulation:
            return
        if self.options.automaticLossScalingSettings.enabled:
            raise EmulatorError(
                "[AutomaticLossScale transform] Automatic loss scaling is not currently supported when the "
                "'enablePipelining' SessionOption is set to 'true', but the 'enableGradientAccumulation' "
                "SessionOption is set to 'false'"
            )
        if self.options.pipelineSchedule != "popart":
            raise EmulatorError(
                "Continuous weight updates are currently not supported. The schedule is "
                f"{self.options.pipelineSchedule}; set enableGradientAccumulation, or use the popart schedule"
            )

    def check_batch_serialisation(self) -> None:
        iterations = self.options.pipelineBatchSerialization
        if iterations < 1:
            raise EmulatorError(f"pipelineBatchSerialization is {iterations}; use 1 or more micro-batches at a time")
        if iterations != 1 and self.training and self.options.reduction() is not Reduction.SUM:
            raise EmulatorError(
                "batch_serialization_iterations != 1 is only supported when reduction_method is "
                "GradientAccumulationReductionMethod.SUM. Set accumulationAndReplicationReductionType to Sum"
            )
