"""Pipeline: the only list of passes, in the order in which they turn a graph into an executable.

    Graph of a model  ->  Graph of a step  ->  LoweredStep  ->  Executable

A pass is a function from one frozen ``CompileState`` to the next; it never changes its argument or the graph in it.
So each pass can be run, printed and tested by itself:

    state = run_passes(start(graph, options), stop_after="gradients")
    print(state)

``ipu-emu compile MODEL --stop-after gradients`` prints the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ipu_emu.compiler.options import CompileOptions
from ipu_emu.compiler.passes.compile_state import CompileState
from ipu_emu.compiler.passes.model_passes import (
    assign_ipus_pass,
    check_placement_pass,
    check_trained_pass,
    dropout_pass,
    expand_pass,
    read_transposed_pass,
    recognise_gelu_pass,
    stride_channel_groups_pass,
    unfold_pass,
)
from ipu_emu.compiler.passes.order_passes import (
    form_stages_pass,
    forward_only_pass,
    fuse_elementwise_pass,
    insert_ipu_copies_pass,
    merge_collectives_pass,
    offload_activations_pass,
    plan_loop_bodies_pass,
    recompute_pass,
    stage_inputs_pass,
)
from ipu_emu.compiler.passes.program_passes import (
    lower_pass,
    plan_memory_pass,
    remove_host_io_pass,
)
from ipu_emu.compiler.passes.step_passes import (
    check_anchors_pass,
    check_gradients_pass,
    prune_pass,
    restore_anchored_pass,
    round_stochastically_pass,
)
from ipu_emu.compiler.passes.training_passes import (
    change_loss_scale_pass,
    clip_gradients_pass,
    differentiate_pass,
    fuse_softmax_nll_pass,
    gradients_pass,
    offload_variables_pass,
    place_updates_pass,
    shard_variables_pass,
    unscale_gradients_pass,
    update_weights_pass,
)
from ipu_emu.compiler.placement.placement_options import PlacementMode
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph
from ipu_emu.program.executable import Executable
from popdist_py import trace
from popdist_py.messages.suggestion import did_you_mean

__all__ = ["PASSES", "STEP_GRAPH", "CompileState", "Pass", "compile", "pass_named", "passes", "run_passes", "start"]


@dataclass(frozen=True)
class Pass:
    """One pass; ``applies`` returns whether it runs with given options."""

    name: str
    summary: str
    run: Callable[[CompileState], CompileState]
    applies: Callable[[CompileOptions], bool] = lambda options: True


def start(graph: Graph, options: CompileOptions) -> CompileState:
    """Return the state before the first pass."""
    return CompileState(graph, options, options.anchors)


def passes(options: CompileOptions) -> list[Pass]:
    """Return the passes that run with ``options``."""
    return [one for one in PASSES if one.applies(options)]


def pass_named(name: str) -> Pass:
    """Return the pass called ``name``; raise EmulatorError if there is none."""
    names = [one.name for one in PASSES]
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
    for one in PASSES[first:end]:
        if one.applies(state.options):
            with trace.span(one.name, trace.Category.COMPILATION):
                state = one.run(replace(state, graph=state.graph.copy(), done=(*state.done, one.name)))
    return state


def compile(graph: Graph, options: CompileOptions) -> Executable:
    """Compile a model; raise EmulatorError if it cannot be compiled."""
    return run_passes(start(graph, options)).executable


def _places(o: CompileOptions) -> bool:
    return o.placement.mode is not PlacementMode.OFF


def _strides_groups(o: CompileOptions) -> bool:
    return o.strided_groups


def _trains(o: CompileOptions) -> bool:
    return o.training is not None


def _scales_loss(o: CompileOptions) -> bool:
    return o.training is not None and o.training.loss_scaler is not None


def _rounds(o: CompileOptions) -> bool:
    return o.stochastic_rounding


def _forward_only(o: CompileOptions) -> bool:
    return o.forward_only


def _fuses(o: CompileOptions) -> bool:
    return o.fuse_elementwise


def _pipelines(o: CompileOptions) -> bool:
    return o.pipeline is not None


def _is_synthetic(o: CompileOptions) -> bool:
    return o.streams.synthetic


def _has_host_io(o: CompileOptions) -> bool:
    return not o.streams.synthetic


#: The pass after which the graph is that of a step, with gradients and weight updates; it runs with any options.
#: From there a program can be made more than once, with other options: the whole step, its forward pass, or a step
#: that saves memory.
STEP_GRAPH = "check-gradients"

PASSES: Sequence[Pass] = (
    # Graph of a model -> graph of a step
    Pass("check-placement", "refuse annotations of IPUs and pipeline stages that cannot run", check_placement_pass),
    Pass("check-trained", "warn about trained initializers that are probably constants", check_trained_pass, _trains),
    Pass("assign-ipus", "give each op its IPU and its pipeline stage", assign_ipus_pass, _places),
    Pass("stride-channel-groups", "form groups of every G-th channel", stride_channel_groups_pass, _strides_groups),
    Pass(
        "anchored-constants",
        "compute constant expressions in the step if their gradients are anchored",
        unfold_pass,
        _trains,
    ),
    Pass("recognise-gelu", "replace the elementary ops of GELU by one op", recognise_gelu_pass),
    Pass("read-transposed", "multiply by transposed matrices without transposing them", read_transposed_pass),
    Pass("expand", "replace composite ops by the ops that define them", expand_pass),
    Pass("dropout", "give each active dropout its own random numbers", dropout_pass),
    Pass("differentiate", "append the ops of the backward pass", differentiate_pass, _trains),
    Pass("fuse-softmax-nll", "merge the gradients of softmax and log likelihood", fuse_softmax_nll_pass, _trains),
    Pass("gradients", "list the gradients that replicas reduce, with their accumulators", gradients_pass, _trains),
    Pass("unscale-gradients", "count large gradients, and undo the loss scale", unscale_gradients_pass, _scales_loss),
    Pass("clip-gradients", "limit the norms of groups of gradients", clip_gradients_pass, _trains),
    Pass("update-weights", "append the weight updates with their optimiser states", update_weights_pass, _trains),
    Pass("change-loss-scale", "append the change of the loss scale", change_loss_scale_pass, _scales_loss),
    Pass("shard-variables", "divide weights and optimiser states between replicas", shard_variables_pass, _trains),
    Pass("place-updates", "place each weight update on the IPU of its weight", place_updates_pass, _trains),
    Pass("offload-variables", "load and store variables that are in Streaming Memory", offload_variables_pass),
    Pass("restored-anchors", "copy activations whose restored value is anchored", restore_anchored_pass, _pipelines),
    Pass("check-anchors", "refuse anchors that are not tensors of the step", check_anchors_pass),
    Pass("prune", "drop ops and tensors that no anchor and no update needs", prune_pass),
    Pass("round-stochastically", "round FLOAT16 results by random numbers", round_stochastically_pass, _rounds),
    Pass(STEP_GRAPH, "refuse gradients of loops that cannot be differentiated", check_gradients_pass),
    # Graph of a step -> graph in the order of the program
    Pass("forward-only", "drop gradients and weight updates", forward_only_pass, _forward_only),
    Pass("fuse-elementwise", "merge chains of element-wise ops", fuse_elementwise_pass, _fuses),
    Pass("plan-loop-bodies", "plan the memory of loop bodies", plan_loop_bodies_pass),
    Pass("recompute", "repeat forward ops in the backward pass to save memory", recompute_pass, _trains),
    Pass("stage-inputs", "load inputs that wait in Streaming Memory", stage_inputs_pass, _has_host_io),
    Pass("form-stages", "form the stages of the pipeline", form_stages_pass, _pipelines),
    Pass(
        "insert-ipu-copies", "sort the ops by stage, and copy tensors that another IPU reads", insert_ipu_copies_pass
    ),
    Pass(
        "offload-activations",
        "keep activations in Streaming Memory until they are read",
        offload_activations_pass,
        _trains,
    ),
    Pass("merge-collectives", "sort the ops so that collectives between replicas become one", merge_collectives_pass),
    # Graph -> program -> executable
    Pass("lower", "make the program: loops, host I/O, collectives and ops", lower_pass),
    Pass("remove-host-io", "drop loads and stores if data stays on the device", remove_host_io_pass, _is_synthetic),
    Pass("plan-memory", "assign an address to each tensor", plan_memory_pass),
)
