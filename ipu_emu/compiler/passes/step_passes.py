"""Passes that end the graph of a step: anchors, pruning, stochastic rounding, and its checks."""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.compiler.passes.compile_state import CompileState
from ipu_emu.compiler.placement.restored_anchors import restore_anchored
from ipu_emu.compiler.rewriting.anchor_rules import check_anchors
from ipu_emu.compiler.rewriting.pruning import prune
from ipu_emu.compiler.rewriting.stochastic_rounding import round_stochastically
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.control.loop_and_while import check_gradients

__all__ = [
    "check_anchors_pass",
    "check_gradients_pass",
    "prune_pass",
    "restore_anchored_pass",
    "round_stochastically_pass",
]


def restore_anchored_pass(state: CompileState) -> CompileState:
    restore_anchored(state.graph, [anchor.tensor for anchor in state.anchors])
    return state


def check_anchors_pass(state: CompileState) -> CompileState:
    check_anchors(state.graph, state.anchors)
    return state


def prune_pass(state: CompileState) -> CompileState:
    wanted = [anchor.tensor for anchor in state.anchors]
    wanted += [id for gradient in state.gradients for id in (gradient.part, gradient.total)]
    prune(state.graph, wanted)
    return state


def round_stochastically_pass(state: CompileState) -> CompileState:
    round_stochastically(state.graph)
    halves = {g.total for g in state.gradients if state.graph.tensor(g.total).dtype is FLOAT16}
    return replace(state, gradients=tuple(replace(g, rounded=g.total in halves) for g in state.gradients))


def check_gradients_pass(state: CompileState) -> CompileState:
    check_gradients(state.graph)
    return state
