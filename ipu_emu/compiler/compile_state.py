"""Compile state: the results of the passes so far, which each pass takes and returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from ipu_emu.compiler.fusion.merge_collectives import Merged
from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.compiler.lowering.lowered_step import LoweredStep
from ipu_emu.compiler.lowering.pipelining import Pipelining, Stages
from ipu_emu.compiler.options import CompileOptions, TrainingOptions
from ipu_emu.graph import Graph
from ipu_emu.program.anchors import Anchor
from ipu_emu.program.executable import Executable


@dataclass(frozen=True)
class CompileState:
    """The results of the passes so far.

    ``gradients`` are those that replicas reduce between the backward pass and the updates. ``update_inputs`` maps
    each weight to the id of the gradient that its update reads. ``merged`` are the ops that become one collective.
    ``done`` names the passes that have run.
    """

    graph: Graph
    options: CompileOptions
    gradients: tuple[Gradient, ...] = ()
    update_inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pipelining: Pipelining | None = None
    merged: Merged = ()
    program: LoweredStep | None = None
    result: Executable | None = None
    done: tuple[str, ...] = ()

    def field(self, path: str) -> Any:
        """Return a field of the state, or of its options, by its name or dotted path; "state" is the state."""
        owner = self if hasattr(self, path.partition(".")[0]) else self.options
        return self if path == "state" else attrgetter(path)(owner)

    @property
    def executable(self) -> Executable:
        """The executable, which exists after the last pass."""
        assert self.result is not None, f"the last pass that has run is {self.done[-1:]}"
        return self.result

    @property
    def forward_only(self) -> CompileState:
        """The state, from which the passes compile only the forward pass."""
        return replace(self, options=replace(self.options, forward_only=True))

    @property
    def training(self) -> TrainingOptions:
        """The options of training, in passes that run only with them."""
        assert self.options.training is not None
        return self.options.training

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """The tensors that a step returns to the host."""
        return self.options.anchors

    @property
    def anchored(self) -> list[str]:
        """The ids of the anchored tensors."""
        return [anchor.tensor for anchor in self.anchors]

    @property
    def wanted(self) -> list[str]:
        """The ids of the tensors that must be in the step: anchors and gradients."""
        return self.anchored + [id for gradient in self.gradients for id in (gradient.part, gradient.total)]

    @property
    def remote_totals(self) -> set[str]:
        """The ids of the sums of gradients that are loaded from Streaming Memory to be reduced."""
        return {gradient.total for gradient in self.gradients if gradient.remote}

    @property
    def totals(self) -> dict[str, str]:
        """Maps the id of a gradient's sum over micro-batches to the id of the gradient of one micro-batch."""
        return {gradient.total: gradient.part for gradient in self.gradients}

    @property
    def stages(self) -> Stages:
        """The stage of every op of the current graph."""
        continuous = bool(self.gradients) and self.options.step.accumulation == 1
        return Stages(self.graph, self.pipelining, continuous=continuous)

    @property
    def form(self) -> str:
        """The latest result: the executable, else the program, else the graph."""
        return "executable" if self.result else "program" if self.program else "graph"

    def __str__(self) -> str:
        return str(self.result or self.program or _listing(self.graph, self.merged))


def _listing(graph: Graph, merged: Merged) -> str:
    """A line for each op, with the part of the step and the place that it runs in; merged collectives are marked."""
    joins = {id for ids in merged for id in ids[1:]}
    return "\n".join(
        f"{op.phase.value:<9} IPU {op.place.ipu}  stage {op.place.stage}  {op}"
        + ("  merged with the op above" if joins.intersection(op.outputs) else "")
        for op in graph.ops
    )
