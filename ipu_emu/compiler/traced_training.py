"""Traced training: the graph of a step whose gradients and weight updates a framework has built itself.

The passes that build gradients and updates are left out; all later ones run as for any other step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.compiler.optimisers.update_rule import HyperParameter, OptimizerState, UpdateRule
from ipu_emu.compiler.options import CompileOptions, TrainingOptions
from ipu_emu.compiler.pipeline import CompileState
from ipu_emu.errors import InternalError
from ipu_emu.graph import Graph, Tensor

__all__ = ["TRACE_FOLDER", "traced_step"]

#: The environment variable with the folder to which a program writes what it would compile, instead of running it.
TRACE_FOLDER = "IPU_EMU_TRACE_FOLDER"

#: The last of the passes that build gradients and updates.
_LAST = "change-loss-scale"


class _TracedRule(UpdateRule):
    """The rule of updates that are in the graph already."""

    loss_scaling, clips, specific, accum_type = HyperParameter(1.0), (), {}, None

    def kinds(self, weight: str, *, divisor: int) -> dict[str, HyperParameter]:
        raise InternalError("the updates of a traced step are in its graph")

    def states(self, weight: Tensor, data: Any) -> list[OptimizerState]:
        raise InternalError("the states of a traced step are in its graph")

    def op(self, weight: str) -> tuple[str, dict[str, Any]]:
        raise InternalError("the updates of a traced step are in its graph")


def traced_step(
    graph: Graph, options: CompileOptions, gradients: Sequence[Gradient], *, trains: bool
) -> CompileState:
    """Return the state from which the passes go on with an expanded ``graph`` whose ops have phases and places."""
    training = TrainingOptions("", _TracedRule()) if trains else None
    chosen = replace(options, training=training)
    return CompileState(graph, chosen, chosen.anchors, tuple(gradients), done=(_LAST,))
