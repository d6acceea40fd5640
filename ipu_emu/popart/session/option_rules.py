"""Option rules: which session options, anchors and annotations a session may combine.

Options that cannot run are refused with PopART's messages. Source: PopART 3.4, ``willow/src/ir.cpp`` and
``willow/src/transforms/pipeline.cpp``. The compiler checks limits of the hardware, for every front end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import popdist_py
from ipu_emu.compiler.annotations import RECOMPUTE
from ipu_emu.compiler.gradients.gradient import GradientReduction
from ipu_emu.compiler.placement.placement_rules import computed_ops
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.types.enums import AnchorReturnTypeId
from ipu_emu.session.options.option_enums import Instrumentation, VirtualGraphMode
from ipu_emu.session.options.session_options import SessionOptions

#: The value of the annotation that recomputes the outputs of an op.
_AGAIN = 2


def check_combination(model: Graph, options: SessionOptions, flow: DataFlow, *, training: bool, ipus: int) -> None:
    """Raise EmulatorError if options, anchors and annotations contradict each other; a replica has ``ipus``."""
    if options.enablePipelining:
        _PipeliningRules(model, computed_ops(model), options, flow, training, ipus).check()
    else:
        _check_without_pipelining(options, flow, training)


def check_cycle_counter(options: SessionOptions, id: str, *, ipus: int) -> None:
    """Raise EmulatorError unless there is a cycle counter ``id``.

    "" is the outermost counter; inner_ipu_0, ... count the loops of each of the ``ipus`` of a replica. All return the
    same number, because an IPU counts cycles while it waits, too.
    """
    if not options.instrumentWithHardwareCycleCounter:
        raise EmulatorError(
            "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order to measure cycle count"
        )
    kinds = {Instrumentation(kind) for kind in options.hardwareInstrumentations}
    inner = [f"inner_ipu_{ipu}" for ipu in range(ipus)] if Instrumentation.Inner in kinds else []
    if id not in [*([""] if Instrumentation.Outer in kinds else []), *inner]:
        raise EmulatorError(
            f"Invalid id for cycle counter, '{id}'. Make sure you have set "
            "SessionOption::hardwareInstrumentations correctly."
        )


def _check_without_pipelining(options: SessionOptions, flow: DataFlow, training: bool) -> None:
    if options.enableExplicitMainLoops:
        for id in flow.anchors():
            if flow.art(id).id() is AnchorReturnTypeId.EveryN:
                raise EmulatorError(
                    f'[MainLoops] AnchorReturnType::EVERYN for Tensor "{id}" is unsupported when explicit main loops '
                    "are enabled. Supported anchor return types are AnchorReturnTypeId::All and "
                    "AnchorReturnTypeId::Sum."
                )
    if options.createImplicitPipeliningFwdOnlyProgram and training:
        raise EmulatorError("Implicit pipelining forward-only program is not supported without implicit pipelining.")


@dataclass(frozen=True)
class _PipeliningRules:
    """The checks in PopART's order."""

    model: Graph
    ops: Sequence[Op]
    options: SessionOptions
    flow: DataFlow
    training: bool
    ipus: int

    def check(self) -> None:
        self.check_modes()
        self.check_forward_only()
        self.check_recomputation()
        self.check_anchors()
        self.check_updates()
        self.check_batch_serialisation()

    def check_modes(self) -> None:
        options = self.options
        # Either of these two options enables explicit pipelining.
        if options.useHostCopyOps or options.enableExplicitMainLoops:
            for name in ("useHostCopyOps", "enableExplicitMainLoops", "explicitRecomputation"):
                if not getattr(options, name):
                    raise EmulatorError(f"SessionOption '{name}' must be true.")
        off = options.virtualGraphMode is VirtualGraphMode.Off
        if options.pipelinesExplicitly() and off:
            raise EmulatorError(
                "Pipelining requires the 'virtualGraphMode' session option to not be VirtualGraphMode::Off."
            )
        unsplit = self.ipus == 1 and options.pipelineBatchSerialization == 1
        if not options.pipelinesExplicitly() and (off or unsplit):
            mode = VirtualGraphMode(options.virtualGraphMode).name
            device = "poprun-py --ipus-per-replica 2" if popdist_py.isPopdistEnvSet() else "acquireAvailableDevice(2)"
            hint = f" Give each replica 2 IPUs or more: {device}." if unsplit else ""
            raise EmulatorError(
                f"Pipelining requires more than 1 IPU (currently {self.ipus}) and the 'virtualGraphMode' session "
                f"option to not be VirtualGraphMode::Off (currently VirtualGraphMode::{mode}).{hint}"
            )

    def check_forward_only(self) -> None:
        if not self.options.createImplicitPipeliningFwdOnlyProgram or not self.training:
            return
        why = ""
        if self.options.pipelinesExplicitly():
            why = "with explicit pipelining."
        elif not self.options.enableGradientAccumulation:
            why = "without gradient accumulation."
        if why:
            raise EmulatorError(f"Implicit pipelining forward-only program is not supported {why}")

    def check_recomputation(self) -> None:
        if not self.options.pipelinesExplicitly() and any(op.attributes.get(RECOMPUTE) == _AGAIN for op in self.ops):
            raise EmulatorError("When pipelining is enabled, user annotation for recomputation is not allowed")

    def check_anchors(self) -> None:
        if any(self.flow.art(id).id() is AnchorReturnTypeId.EveryN for id in self.flow.anchors()):
            raise EmulatorError(
                "[Explicit Pipeline] Cannot execute when an anchor has AnchorReturnType 'EveryN'"
                if self.options.pipelinesExplicitly()
                else "AnchorReturnType::EVERYN is not valid for pipelined models"
            )

    def check_updates(self) -> None:
        """Refuse options that do not support weights changing while micro-batches are in the pipeline."""
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
        if iterations != 1 and self.training and self.options.reduction() is not GradientReduction.SUM:
            raise EmulatorError(
                "batch_serialization_iterations != 1 is only supported when reduction_method is "
                "GradientAccumulationReductionMethod.SUM. Set accumulationAndReplicationReductionType to Sum"
            )
