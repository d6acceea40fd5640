"""Placement: the rules for virtual graphs and pipeline stages, checked on the annotations of a model.

What cannot be placed is refused with PopART's words. Source: PopART 3.4, ``willow/src/ir.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.popart.builder.annotations import IPU_NUMBER
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.placement.pipeline_rules import PipelineRules
from ipu_emu.popart.types.enums import AnchorReturnTypeId, VirtualGraphMode

__all__ = ["Placement", "check_placement", "check_virtual_graphs_fit"]


@dataclass(frozen=True)
class Placement:
    """Pipeline stages of the forward pass and of all of a step; 0 without pipelining."""

    forward_stages: int = 0
    stages: int = 0


def check_placement(model: Graph, options: SessionOptions, flow: DataFlow, *, training: bool, ipus: int) -> Placement:
    """Raise EmulatorError where annotations and options contradict each other; ``ipus`` are those of a replica."""
    ops = [op for op in model.ops if not _is_constant(model, op)]
    _check_main_loops(options, flow)
    if options.usesVirtualGraphs():
        _check_virtual_graphs(ops, options)
    if not options.enablePipelining:
        _check_forward_only(options, training)
        return Placement()
    return Placement(*PipelineRules(model, ops, options, flow, training, ipus).checked())


def check_virtual_graphs_fit(model: Graph, ipus: int) -> None:
    """Raise EmulatorError for the first op that is placed on an IPU which a replica does not have."""
    for op in model.ops:
        number = op.attributes.get(IPU_NUMBER)
        if number is not None and not 0 <= int(number) < ipus:
            raise EmulatorError(
                f"{op.label} has been assigned to an invalid virtual graph {number}. numIPUs = {ipus}."
            )


def _is_constant(model: Graph, op: Op) -> bool:
    return all(model.tensors[id].role is Role.CONSTANT for id in op.outputs if id)


def _check_main_loops(options: SessionOptions, flow: DataFlow) -> None:
    if not options.enableExplicitMainLoops or options.enablePipelining:
        return
    for id in flow.anchors():
        if flow.art(id).id() is AnchorReturnTypeId.EveryN:
            raise EmulatorError(
                f'[MainLoops] AnchorReturnType::EVERYN for Tensor "{id}" is unsupported when explicit main loops are '
                "enabled. Supported anchor return types are AnchorReturnTypeId::All and AnchorReturnTypeId::Sum."
            )


def _check_forward_only(options: SessionOptions, training: bool) -> None:
    if options.createImplicitPipeliningFwdOnlyProgram and training:
        raise EmulatorError("Implicit pipelining forward-only program is not supported without implicit pipelining.")


def _check_virtual_graphs(ops: Sequence[Op], options: SessionOptions) -> None:
    counts: dict[int, int] = {}
    for op in ops:
        number = int(op.attributes.get(IPU_NUMBER, -1))
        counts[number] = counts.get(number, 0) + 1
    placed = [number for number in counts if number >= 0]
    if options.virtualGraphMode is not VirtualGraphMode.Manual:
        return
    if not placed and ops:
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
