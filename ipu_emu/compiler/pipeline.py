"""Pipeline: the only list of passes, in the order in which they turn a graph into an executable.

    Graph of a model  ->  Graph of a step  ->  LoweredStep  ->  Executable

A pass is a function of the folders of the compiler, with the fields of the frozen ``CompileState`` that it reads and
the field that its result becomes. It gets a copy of the graph, which it may change, so that no state ever changes and
each pass can be run, printed and tested by itself:

    state = run_passes(CompileState(graph, options), stop_after="gradients")
    print(state)

``ipu-emu compile MODEL --stop-after gradients`` prints the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from ipu_emu.compiler.compile_state import CompileState
from ipu_emu.compiler.fusion.elementwise_fusion import fuse
from ipu_emu.compiler.fusion.fused_updates import fuse_updates
from ipu_emu.compiler.fusion.merge_collectives import merge_collectives
from ipu_emu.compiler.gradients.recomputation import recompute
from ipu_emu.compiler.lowering.lowered_step import lower, without_host_io
from ipu_emu.compiler.lowering.pipelining import Pipelining
from ipu_emu.compiler.memory.offloading import offload_activations, stage_inputs
from ipu_emu.compiler.memory.planner import plan_bodies, plan_memory
from ipu_emu.compiler.optimisers.gradient_clipping import clip_norms
from ipu_emu.compiler.options import CompileOptions
from ipu_emu.compiler.placement.assign_ipus import assign_ipus
from ipu_emu.compiler.placement.ipu_copies import insert_ipu_copies
from ipu_emu.compiler.placement.placement_rules import check_placement
from ipu_emu.compiler.placement.tensor_places import place_updates
from ipu_emu.compiler.rewriting.anchors import check_anchors, restore_anchored, unfolded
from ipu_emu.compiler.rewriting.expansion import expanded, with_dropout, with_strided_groups
from ipu_emu.compiler.rewriting.pruning import forward_anchors, forward_graph, prune
from ipu_emu.compiler.rewriting.recognised_ops import fuse_softmax_nll, with_gelu, with_transposed_products
from ipu_emu.compiler.rewriting.stochastic_rounding import round_stochastically
from ipu_emu.compiler.training_passes import (
    append_gradients,
    append_updates,
    change_loss_scale,
    check_weights,
    list_gradients,
    offload_updates,
    shard_updates,
    unscale_gradients,
)
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, StepPhase
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops.control.loop_and_while import check_gradients
from ipu_emu.program.executable import Executable
from ipu_emu.program.schedules.schedule_table import depth
from ipu_emu.program.storage_order import batch_innermost
from popdist_py import trace
from popdist_py.messages.suggestion import did_you_mean

__all__ = ["PASSES", "STEP_GRAPH", "CompileState", "Pass", "compile", "lowered", "pass_named", "passes", "run_passes"]


@dataclass(frozen=True)
class Pass:
    """One pass: ``function`` of what ``reads`` names; a result becomes the field ``writes`` of the state.

    Words of ``reads`` are fields of the state or of its options, or ``keyword=field``; ``state`` is all of it, and
    such a function returns the next state. ``when`` is the field of the options that decides whether the pass runs.
    """

    name: str
    summary: str
    function: Callable[..., Any]
    reads: str = "graph"
    when: str = ""
    writes: str = "graph"

    def applies(self, options: CompileOptions) -> bool:
        """Whether the pass runs with ``options``."""
        return not self.when or bool(attrgetter(self.when)(options))

    def run(self, state: CompileState) -> CompileState:
        """Return the next state; its graph is a changed copy, or another."""
        state = replace(state, graph=state.graph.copy())
        words = [word.rpartition("=") for word in self.reads.split()]
        arguments = [state.field(name) for key, _, name in words if not key]
        result = self.function(*arguments, **{key: state.field(name) for key, _, name in words if key})
        if isinstance(result, CompileState):
            return result
        return state if result is None else replace(state, **{self.writes: result})


def passes(options: CompileOptions) -> list[Pass]:
    """Return the passes that run with ``options``."""
    return [pass_ for pass_ in PASSES if pass_.applies(options)]


def pass_named(name: str) -> Pass:
    """Return the pass called ``name``; raise EmulatorError if there is none."""
    names = [pass_.name for pass_ in PASSES]
    if name not in names:
        all = "; ipu-emu compile --list names all"
        raise EmulatorError(f"'{name}' is not a pass of the compiler{did_you_mean(name, names) or all}")
    return PASSES[names.index(name)]


def run_passes(state: CompileState, *, stop_after: str | None = None) -> CompileState:
    """Run the remaining passes, up to ``stop_after`` or all of them.

    Raise EmulatorError for an unknown name, and for a model that cannot be compiled.
    """
    first = 1 + PASSES.index(pass_named(state.done[-1])) if state.done else 0
    end = 1 + PASSES.index(pass_named(stop_after)) if stop_after is not None else len(PASSES)
    for pass_ in PASSES[first:end]:
        if pass_.applies(state.options):
            with trace.span(pass_.name, trace.Category.COMPILATION):
                state = replace(pass_.run(state), done=(*state.done, pass_.name))
    return state


def lowered(state: CompileState) -> Executable:
    """Run all remaining passes, and return the executable."""
    return run_passes(state).executable


def compile(graph: Graph, options: CompileOptions) -> Executable:
    """Compile a model; raise EmulatorError if it cannot be compiled."""
    return lowered(CompileState(graph, options))


def _forward_only(state: CompileState) -> CompileState:
    anchors = forward_anchors(state.graph, state.anchors)
    options = replace(state.options, anchors=anchors)
    return replace(state, graph=forward_graph(state.graph, anchors), options=options, gradients=())


def _fuse(graph: Graph, wanted: Sequence[str]) -> None:
    fuse(graph, wanted)
    fuse_updates(graph, wanted)


def _round_stochastically(state: CompileState) -> CompileState:
    round_stochastically(state.graph)
    halves = {g.total for g in state.gradients if state.graph.tensor(g.total).dtype is FLOAT16}
    return replace(state, gradients=tuple(replace(g, rounded=g.total in halves) for g in state.gradients))


def _recompute(state: CompileState) -> CompileState:
    pipeline, step = state.options.pipeline, state.options.step

    def copies(stages: int, stage: int) -> int:
        return min(step.micro_batches, depth(pipeline.schedule, stages, stage, training=True)) if pipeline else 1

    if state.gradients:
        recompute(state.graph, state.options.recomputation, state.anchored, copies)
    return state


def _form_stages(state: CompileState) -> CompileState:
    pipeline = state.options.pipeline
    assert pipeline is not None
    trains = any(op.phase is StepPhase.BACKWARD for op in state.graph.ops)
    pipelining = Pipelining.of(state.graph, pipeline.schedule, training=trains, iterations=pipeline.iterations)
    pipelining.check(state.options.step.micro_batches)
    return replace(state, pipelining=pipelining)


def _offload_activations(state: CompileState) -> CompileState:
    if state.gradients:
        offload_activations(state.graph, state.options.locations.activation_storage())
    return state


def _plan_memory(state: CompileState) -> CompileState:
    graph, program, options = state.graph, state.program, state.options
    assert program is not None
    plan = plan_memory(
        graph,
        program.instructions,
        batch_innermost=batch_innermost(graph),
        buckets=program.buckets,
        persistent=program.persistent,
        shared_places=program.shared_places,
    )
    anchors = {anchor.tensor: anchor for anchor in state.anchors}
    result = Executable(graph, program.instructions, plan, options.step, anchors, program.inputs, options.sync)
    return replace(state, result=result)


#: The pass after which the graph is that of a step, with gradients and weight updates; it runs with any options.
#: From there a program can be made more than once, with other options: the whole step, its forward pass, or a step
#: that saves memory.
STEP_GRAPH = "check-gradients"

PASSES: Sequence[Pass] = (
    # Graph of a model -> graph of a step
    Pass(
        "check-placement",
        "refuse annotations of IPUs and pipeline stages that cannot run",
        check_placement,
        "graph placement pipeline step training=trains",
    ),
    Pass(
        "check-trained",
        "warn about trained initializers that are probably constants",
        check_weights,
        "state",
        "trains",
    ),
    Pass(
        "assign-ipus",
        "give each op its IPU and its pipeline stage",
        assign_ipus,
        "graph placement pipeline work=work step=step",
        "placement.assigns",
    ),
    Pass("stride-channel-groups", "form groups of every G-th channel", with_strided_groups, when="strided_groups"),
    Pass(
        "anchored-constants",
        "compute constant expressions in the step if their gradients are anchored",
        unfolded,
        "graph anchored",
        "trains",
    ),
    Pass("recognise-gelu", "replace the elementary ops of GELU by one op", with_gelu),
    Pass("read-transposed", "multiply by transposed matrices without transposing them", with_transposed_products),
    Pass("expand", "replace composite ops by the ops that define them", expanded, "graph differentiated=trains"),
    Pass("dropout", "give each active dropout its own random numbers", with_dropout, "graph training=trains"),
    Pass("differentiate", "append the ops of the backward pass", append_gradients, "state", "trains"),
    Pass("fuse-softmax-nll", "merge the gradients of softmax and log likelihood", fuse_softmax_nll, when="trains"),
    Pass(
        "gradients",
        "list the gradients that replicas reduce, with their accumulators",
        list_gradients,
        "state",
        "trains",
    ),
    Pass(
        "unscale-gradients",
        "count large gradients, and undo the loss scale",
        unscale_gradients,
        "state",
        "scales_loss",
    ),
    Pass(
        "clip-gradients",
        "limit the norms of groups of gradients",
        clip_norms,
        "graph training.rule update_inputs divisor=remaining_divisor replicas=replicas",
        "trains",
        "update_inputs",
    ),
    Pass(
        "update-weights", "append the weight updates with their optimiser states", append_updates, "state", "trains"
    ),
    Pass("change-loss-scale", "append the change of the loss scale", change_loss_scale, "state", "scales_loss"),
    Pass("shard-variables", "divide weights and optimiser states between replicas", shard_updates, "state", "trains"),
    Pass(
        "place-updates", "place each weight update on the IPU of its weight", place_updates, "graph totals", "trains"
    ),
    Pass("offload-variables", "load and store variables that are in Streaming Memory", offload_updates, "state"),
    Pass(
        "restored-anchors",
        "copy activations whose restored value is anchored",
        restore_anchored,
        "graph anchored",
        "pipeline",
    ),
    Pass("check-anchors", "refuse anchors that are not tensors of the step", check_anchors, "graph anchors"),
    Pass("prune", "drop ops and tensors that no anchor and no update needs", prune, "graph wanted"),
    Pass(
        "round-stochastically",
        "round FLOAT16 results by random numbers",
        _round_stochastically,
        "state",
        "stochastic_rounding",
    ),
    Pass(STEP_GRAPH, "refuse gradients of loops that cannot be differentiated", check_gradients),
    # Graph of a step -> graph in the order of the program
    Pass("forward-only", "drop gradients and weight updates", _forward_only, "state", "forward_only"),
    Pass("fuse-elementwise", "merge chains of element-wise ops", _fuse, "graph wanted", "fuse_elementwise"),
    Pass("plan-loop-bodies", "plan the memory of loop bodies", plan_bodies, "graph fused=fuse_elementwise"),
    Pass("recompute", "repeat forward ops in the backward pass to save memory", _recompute, "state", "trains"),
    Pass(
        "stage-inputs",
        "load inputs that wait in Streaming Memory",
        stage_inputs,
        "graph streams.staged",
        "streams.from_host",
    ),
    Pass("form-stages", "form the stages of the pipeline", _form_stages, "state", "pipeline"),
    Pass(
        "insert-ipu-copies",
        "sort the ops by stage, and copy tensors that another IPU reads",
        insert_ipu_copies,
        "graph stages.of totals",
    ),
    Pass(
        "offload-activations",
        "keep activations in Streaming Memory until they are read",
        _offload_activations,
        "state",
        "trains",
    ),
    Pass(
        "merge-collectives",
        "sort the ops so that collectives between replicas become one",
        merge_collectives,
        "graph stages.of bucket_bytes remote_totals",
        writes="merged",
    ),
    # Graph -> program -> executable
    Pass(
        "lower",
        "make the program: loops, host I/O, collectives and ops",
        lower,
        "graph options anchors=anchors gradients=gradients merged=merged stages=stages",
        writes="program",
    ),
    Pass(
        "remove-host-io",
        "drop loads and stores if data stays on the device",
        without_host_io,
        "program",
        "streams.synthetic",
        "program",
    ),
    Pass("plan-memory", "assign an address to each tensor", _plan_memory, "state"),
)
