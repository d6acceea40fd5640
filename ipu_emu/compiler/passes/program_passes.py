"""Passes that make the program of a step, and the executable with its memory plan."""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.compiler.lowering.lowered_step import lower, without_host_io
from ipu_emu.compiler.memory.planner import plan_memory
from ipu_emu.compiler.passes.compile_state import CompileState
from ipu_emu.program.executable import Executable
from ipu_emu.program.storage_order import batch_innermost

__all__ = ["lower_pass", "plan_memory_pass", "remove_host_io_pass"]


def lower_pass(state: CompileState) -> CompileState:
    program = lower(
        state.graph,
        state.options,
        anchors=state.anchors,
        gradients=state.gradients,
        merged=state.merged,
        stages=state.stages,
    )
    return replace(state, program=program)


def remove_host_io_pass(state: CompileState) -> CompileState:
    assert state.program is not None
    return replace(state, program=without_host_io(state.program))


def plan_memory_pass(state: CompileState) -> CompileState:
    graph, program = state.graph, state.program
    assert program is not None
    plan = plan_memory(
        graph,
        program.instructions,
        batch_innermost=batch_innermost(graph),
        buckets=program.buckets,
        kept=program.kept,
        shared_places=program.shared_places,
    )
    anchors = {anchor.tensor: anchor for anchor in state.anchors}
    options = state.options
    made = Executable(graph, program.instructions, plan, options.step, anchors, program.inputs, options.sync)
    return replace(state, result=made)
