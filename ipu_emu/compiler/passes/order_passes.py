"""Passes that bring the graph of a step into the order of its program, and fuse, recompute and offload."""

from __future__ import annotations

from dataclasses import replace

from ipu_emu.compiler.fusion.elementwise_fusion import fuse
from ipu_emu.compiler.fusion.fused_updates import fuse_updates
from ipu_emu.compiler.fusion.merge_collectives import merge_collectives
from ipu_emu.compiler.gradients.recomputation import recompute
from ipu_emu.compiler.lowering.pipelining import Pipelining
from ipu_emu.compiler.memory.input_staging import stage_inputs
from ipu_emu.compiler.memory.loop_bodies import plan_bodies
from ipu_emu.compiler.memory.offloading import offload_activations
from ipu_emu.compiler.passes.compile_state import CompileState
from ipu_emu.compiler.placement.ipu_copies import insert_ipu_copies
from ipu_emu.compiler.rewriting.forward_graph import forward_anchors, forward_graph
from ipu_emu.graph import StepPhase
from ipu_emu.program.schedules.schedule_table import depth

__all__ = [
    "form_stages_pass",
    "forward_only_pass",
    "fuse_elementwise_pass",
    "insert_ipu_copies_pass",
    "merge_collectives_pass",
    "offload_activations_pass",
    "plan_loop_bodies_pass",
    "recompute_pass",
    "stage_inputs_pass",
]


def forward_only_pass(state: CompileState) -> CompileState:
    anchors = forward_anchors(state.graph, state.anchors)
    return replace(state, graph=forward_graph(state.graph, anchors), anchors=anchors, gradients=())


def fuse_elementwise_pass(state: CompileState) -> CompileState:
    anchors, gradients = state.anchors, state.gradients
    wanted = [*(a.tensor for a in anchors), *(g.part for g in gradients), *(g.total for g in gradients)]
    fuse(state.graph, wanted)
    fuse_updates(state.graph, wanted)
    return state


def plan_loop_bodies_pass(state: CompileState) -> CompileState:
    plan_bodies(state.graph, fused=state.options.fuse_elementwise)
    return state


def recompute_pass(state: CompileState) -> CompileState:
    pipeline, step = state.options.pipeline, state.options.step

    def copies(stages: int, stage: int) -> int:
        if pipeline is None:
            return 1
        count = step.accumulation if step.accumulation > 1 else step.batches
        return min(count, depth(pipeline.schedule, stages, stage, training=True))

    if state.gradients:
        anchored = [anchor.tensor for anchor in state.anchors]
        recompute(state.graph, state.options.recomputation, anchored, copies)
    return state


def stage_inputs_pass(state: CompileState) -> CompileState:
    stage_inputs(state.graph, state.options.streams.staged)
    return state


def form_stages_pass(state: CompileState) -> CompileState:
    pipeline, step = state.options.pipeline, state.options.step
    assert pipeline is not None
    trains = any(op.phase is StepPhase.BACKWARD for op in state.graph.ops)
    made = Pipelining.of(state.graph, pipeline.schedule, training=trains, iterations=pipeline.iterations)
    made.check(step.accumulation if step.accumulation > 1 else step.batches)
    return replace(state, pipelining=made)


def insert_ipu_copies_pass(state: CompileState) -> CompileState:
    insert_ipu_copies(state.graph, state.stages.of, state.totals)
    return state


def offload_activations_pass(state: CompileState) -> CompileState:
    if state.gradients:
        offload_activations(state.graph, state.options.locations.activation_storage())
    return state


def merge_collectives_pass(state: CompileState) -> CompileState:
    remote = {gradient.total for gradient in state.gradients if gradient.remote}
    merged = merge_collectives(state.graph, state.stages.of, state.options.bucket_bytes, remote)
    return replace(state, merged=merged)
