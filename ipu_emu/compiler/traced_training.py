"""Traced training: the graph of a step whose gradients and weight updates a framework has built itself.

The passes that build gradients and updates are skipped; all later ones run as for any other step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ipu_emu.compiler.cache.executable_codec import CLASSES
from ipu_emu.compiler.cache.packed_value import pack, unpack
from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.compiler.memory.tensor_locations import LocationRule, ShardingDomain, StorageChoice, TensorLocations
from ipu_emu.compiler.optimisers.update_rule import HyperParameter, OptimizerState, UpdateRule
from ipu_emu.compiler.options import CompileOptions, HostStreams, TrainingOptions
from ipu_emu.compiler.pipeline import CompileState
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.compiler.rewriting.expansion import expanded
from ipu_emu.errors import EmulatorError, InternalError
from ipu_emu.graph import Graph, Tensor

#: The environment variable with the folder to which a program writes its compiler input, instead of running.
TRACE_FOLDER = "IPU_EMU_TRACE_FOLDER"

_MAGIC = b"IPUTRC\x00\x01"

#: The classes in a file of a traced step: those of executables, and the options of a framework's programs.
_CLASSES = dict(CLASSES) | {
    cls.__name__: cls
    for cls in (
        *(CompileOptions, HostStreams, PipelineOptions, PlacementMode, PlacementOptions),
        *(LocationRule, ShardingDomain, StorageChoice, TensorLocations),
    )
}

#: The last of the passes that build gradients and updates.
_LAST = "change-loss-scale"


class _TracedRule(UpdateRule):
    """The update rule of a graph that already contains its updates."""

    def kinds(self, weight: str, *, divisor: int) -> dict[str, HyperParameter]:
        raise InternalError("the updates of a traced step are in its graph")

    def states(self, weight: Tensor, data: Any) -> list[OptimizerState]:
        raise InternalError("the states of a traced step are in its graph")

    def op(self, weight: str) -> tuple[str, dict[str, Any]]:
        raise InternalError("the updates of a traced step are in its graph")


def traced_step(
    graph: Graph, options: CompileOptions, gradients: Sequence[Gradient], *, trains: bool
) -> CompileState:
    """Return the state from which the passes continue, for a ``graph`` whose ops have phases and places."""
    training = TrainingOptions("", _TracedRule(None, HyperParameter(1.0))) if trains else None
    chosen = replace(options, training=training)
    return CompileState(expanded(graph), chosen, tuple(gradients), done=(_LAST,))


def to_bytes(state: CompileState) -> bytes:
    """Return the state that ``traced_step`` has made as the content of a file."""
    options = replace(state.options, training=None)
    return pack(_MAGIC, (state.graph, options, state.gradients, state.options.training is not None))


def from_bytes(data: bytes) -> CompileState:
    """Reverse ``to_bytes``; raise EmulatorError for other bytes. Nothing in them is executed."""
    value = unpack(_MAGIC, data, "a traced step", classes=_CLASSES)
    match value:
        case Graph() as graph, CompileOptions() as options, tuple() as gradients, bool() as trains:
            return traced_step(graph, options, gradients, trains=trains)
    raise EmulatorError("it does not hold a traced step")
