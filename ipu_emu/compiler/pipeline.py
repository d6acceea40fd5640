"""Pipeline: the only list of passes, in the order in which they turn a graph into an executable.

    Graph of a model  ->  Graph of a step  ->  LoweredStep  ->  Executable

A pass is a function from one frozen ``CompileState`` to the next; it never changes its argument or the graph in it.
So each pass can be run, printed and tested by itself:

    state = run_passes(start(graph, options), stop_after="gradients")
    print(state)

``ipu-emu compile MODEL --stop-after gradients`` prints the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ipu_emu.compiler.fusion.elementwise_fusion import fuse
from ipu_emu.compiler.fusion.fused_updates import fuse_updates
from ipu_emu.compiler.fusion.merge_collectives import Merged, merge_collectives
from ipu_emu.compiler.fusion.softmax_nll import fuse_softmax_nll
from ipu_emu.compiler.gradients.autodiff import differentiate
from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.compiler.gradients.recomputation import recompute
from ipu_emu.compiler.gradients.trained_weights import check_trained, doubts
from ipu_emu.compiler.lowering.lowered_step import LoweredStep, lower, without_host_io
from ipu_emu.compiler.lowering.pipelining import Pipelining, Stages
from ipu_emu.compiler.memory.input_staging import stage_inputs
from ipu_emu.compiler.memory.loop_bodies import plan_bodies
from ipu_emu.compiler.memory.offloading import offload_accumulators, offload_activations, offload_variables
from ipu_emu.compiler.memory.planner import plan_memory
from ipu_emu.compiler.optimisers.automatic_loss_scaling import STATISTICS, check_loss_scaling
from ipu_emu.compiler.optimisers.gradient_clipping import clip_norms
from ipu_emu.compiler.optimisers.optimiser_sharding import shard_variables
from ipu_emu.compiler.options import CompileOptions, TrainingOptions
from ipu_emu.compiler.placement.assign_ipus import assign_ipus
from ipu_emu.compiler.placement.ipu_copies import insert_ipu_copies
from ipu_emu.compiler.placement.placement_options import PlacementMode
from ipu_emu.compiler.placement.placement_rules import check_placement
from ipu_emu.compiler.placement.restored_anchors import restore_anchored
from ipu_emu.compiler.placement.tensor_places import place_updates, tensor_places
from ipu_emu.compiler.rewriting.anchor_rules import check_anchors
from ipu_emu.compiler.rewriting.channel_groups import with_strided_groups
from ipu_emu.compiler.rewriting.dropout_keys import with_dropout
from ipu_emu.compiler.rewriting.expansion import expanded
from ipu_emu.compiler.rewriting.forward_graph import forward_anchors, forward_graph
from ipu_emu.compiler.rewriting.gelu_forms import with_gelu
from ipu_emu.compiler.rewriting.pruning import prune
from ipu_emu.compiler.rewriting.reserved_prefixes import GRADIENT
from ipu_emu.compiler.rewriting.stochastic_rounding import round_stochastically
from ipu_emu.compiler.rewriting.transposed_products import with_transposed_products
from ipu_emu.compiler.rewriting.unfolding import unfolded
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Phase, Role, Tensor
from ipu_emu.graph.dtype import FLOAT, FLOAT16
from ipu_emu.ops.control.loop_and_while import check_gradients
from ipu_emu.program.anchors import Anchor
from ipu_emu.program.executable import Executable
from ipu_emu.program.storage_order import batch_innermost
from popdist_py import trace
from popdist_py.suggestion import did_you_mean

__all__ = ["PASSES", "STEP_GRAPH", "CompileState", "Pass", "compile", "pass_named", "passes", "run_passes", "start"]


@dataclass(frozen=True)
class CompileState:
    """The results of the passes so far.

    ``gradients`` are those that replicas reduce between the backward pass and the updates. ``update_inputs`` maps
    each weight to the id of the gradient that its update reads. ``merged`` are the ops that become one collective.
    ``done`` names the passes that have run.
    """

    graph: Graph
    options: CompileOptions
    anchors: tuple[Anchor, ...] = ()
    gradients: tuple[Gradient, ...] = ()
    update_inputs: Mapping[str, str] = field(default_factory=dict)
    pipelining: Pipelining | None = None
    merged: Merged = ()
    program: LoweredStep | None = None
    result: Executable | None = None
    done: tuple[str, ...] = ()

    @property
    def executable(self) -> Executable:
        """The executable, which exists after the last pass."""
        assert self.result is not None, f"the last pass that has run is {self.done[-1:]}"
        return self.result

    @property
    def totals(self) -> dict[str, str]:
        """Maps the id of a gradient's sum over micro-batches to the id of the gradient of one micro-batch."""
        return {gradient.total: gradient.part for gradient in self.gradients}

    @property
    def stages(self) -> Stages:
        """The stage of every op of the present graph."""
        continuous = bool(self.gradients) and self.options.step.accumulation == 1
        return Stages(self.graph, self.pipelining, continuous=continuous)

    @property
    def form(self) -> str:
        """The latest result: the executable, else the program, else the graph."""
        return "executable" if self.result else "program" if self.program else "graph"

    def __str__(self) -> str:
        return str(self.result or self.program or _listing(self.graph, self.merged))


@dataclass(frozen=True)
class Pass:
    """``applies`` says for which options the pass runs."""

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
                after = one.run(replace(state, graph=state.graph.copy()))
            state = replace(after, done=(*state.done, one.name))
    return state


def compile(graph: Graph, options: CompileOptions) -> Executable:
    """Compile a model; raise EmulatorError if it cannot be compiled."""
    return run_passes(start(graph, options)).executable


def _listing(graph: Graph, merged: Merged) -> str:
    """A line for each op, with the part of the step and the place that it runs in; merged collectives are marked."""
    joins = {id for ids in merged for id in ids[1:]}
    return "\n".join(
        f"{op.phase.value:<9} IPU {op.place.ipu}  stage {op.place.stage}  {op}"
        + ("  merged with the op above" if joins.intersection(op.outputs) else "")
        for op in graph.ops
    )


# Graph of a model -> graph of a step


def _check_placement(state: CompileState) -> CompileState:
    o = state.options
    check_placement(state.graph, o.placement, o.pipeline, o.step, training=o.training is not None)
    return state


def _check_trained(state: CompileState) -> CompileState:
    trained = _training(state).trained
    check_trained(state.graph, trained or ())
    doubt = doubts(state.graph, trained)
    if doubt:
        warnings.warn(doubt, stacklevel=2)
    return state


def _assign_ipus(state: CompileState) -> CompileState:
    o = state.options
    continuous = o.training is not None and o.step.accumulation == 1
    return replace(state, graph=assign_ipus(state.graph, o.placement, o.pipeline, continuous=continuous))


def _stride_channel_groups(state: CompileState) -> CompileState:
    return replace(state, graph=with_strided_groups(state.graph))


def _unfold(state: CompileState) -> CompileState:
    return replace(state, graph=unfolded(state.graph, [anchor.tensor for anchor in state.anchors]))


def _expand(state: CompileState) -> CompileState:
    return replace(state, graph=expanded(state.graph, differentiated=_trains(state.options)))


def _recognise_gelu(state: CompileState) -> CompileState:
    return replace(state, graph=with_gelu(state.graph))


def _read_transposed(state: CompileState) -> CompileState:
    return replace(state, graph=with_transposed_products(state.graph))


def _dropout(state: CompileState) -> CompileState:
    return replace(state, graph=with_dropout(state.graph, training=state.options.training is not None))


def _differentiate(state: CompileState) -> CompileState:
    graph, training = state.graph, _training(state)
    scaling, dtype = training.rule.loss_scaling, graph.tensor(training.loss).dtype
    role = Role.CONSTANT if scaling.constant else Role.SCALAR
    held = FLOAT if training.loss_scaler or training.float_loss_scale else dtype
    seed = Tensor(training.rule.loss_scaling_id(dtype), held, (), role)
    graph.add(seed, np.array(scaling.value, held.numpy))
    place = tensor_places(graph)[training.loss]
    if training.loss_scaler:
        check_loss_scaling(scaling)
        training.loss_scaler.check()
        seed = training.loss_scaler.scaled_seed(graph, seed, place)
    differentiate(graph, training.loss, seed)
    return state


def _fuse_softmax_nll(state: CompileState) -> CompileState:
    fuse_softmax_nll(state.graph)
    return state


def _gradients(state: CompileState) -> CompileState:
    trained = _training(state).trained
    weights = [w for w in state.graph.with_role(Role.WEIGHT) if GRADIENT + w.id in state.graph.tensors]
    weights = [w for w in weights if trained is None or w.id in trained]
    gradients = tuple(_gradient(state, weight) for weight in weights)
    return replace(state, gradients=gradients, update_inputs={g.weight: g.total for g in gradients})


def _gradient(state: CompileState, weight: Tensor) -> Gradient:
    """The total of a gradient: without accumulation the gradient of the micro-batch, else a tensor of its own."""
    graph, rule, part = state.graph, _training(state).rule, GRADIENT + weight.id
    if state.options.step.accumulation == 1:
        graph.tensors[part] = replace(graph.tensors[part], group=weight.group)
        return Gradient(weight.id, part, part)
    total = rule.accumulator(weight.id)
    # A model that was saved in the middle of training has its accumulators, which are 0 between two steps.
    graph.data.pop(total, None)
    graph.tensors[total] = replace(weight, id=total, dtype=rule.accum_type or weight.dtype, role=Role.COMPUTED)
    return Gradient(weight.id, part, total)


def _unscale_gradients(state: CompileState) -> CompileState:
    """The numbers of small and large elements as the gradient of a weight without a name: reduced like one."""
    scaler, graph = _training(state).loss_scaler, state.graph
    assert scaler is not None
    counts: tuple[Gradient, ...] = ()
    if state.gradients:
        parts = [gradient.part for gradient in state.gradients]
        accumulates = state.options.step.accumulation > 1
        part = total = scaler.count(graph, parts, "lossScaleStatistics" if accumulates else STATISTICS)
        if accumulates:
            total = graph.add(replace(graph.tensor(part), id=STATISTICS)).id
        counts = (Gradient("", part, total),)
    unscaled = scaler.undo(graph, state.update_inputs)
    return replace(state, gradients=(*state.gradients, *counts), update_inputs=unscaled)


def _clip_gradients(state: CompileState) -> CompileState:
    o, rule = state.options, _training(state).rule
    clipped = clip_norms(state.graph, rule, state.update_inputs, divisor=o.remaining_divisor, replicas=o.replicas)
    return replace(state, update_inputs=clipped)


def _update_weights(state: CompileState) -> CompileState:
    graph, divisor = state.graph, state.options.remaining_divisor
    for weight, gradient in state.update_inputs.items():
        _training(state).rule.append(graph, graph.tensor(weight), gradient, divisor=divisor)
    return state


def _change_loss_scale(state: CompileState) -> CompileState:
    graph, training = state.graph, _training(state)
    assert training.loss_scaler is not None
    training.loss_scaler.invert(graph)
    for count in (gradient for gradient in state.gradients if not gradient.weight):
        training.loss_scaler.change(graph, count.total)
    return state


def _shard_variables(state: CompileState) -> CompileState:
    o, anchored = state.options, {anchor.tensor for anchor in state.anchors}
    locations, without_effect = o.locations, list[str]()

    def divide(variable: Tensor) -> tuple[int, int] | None:
        if o.stochastic_rounding or variable.id in anchored or not locations.is_sharded(variable):
            return None
        if o.replicas == 1:
            without_effect.append(variable.id)
            return None
        return locations.sharding_group(variable, o.replicas)

    gradients = shard_variables(state.graph, state.gradients, divide, o.replicas, o.reduction)
    if without_effect:
        warnings.warn("Replicated tensor sharding has no effect: there is one replica", stacklevel=2)
    if locations.accumulators.location.sharded and o.replicas > 1:
        warnings.warn(
            "Accumulators of gradients stay whole: replicas would have to reduce them after every micro-batch, which "
            "adds in another order and so changes bits",
            stacklevel=2,
        )
    return replace(state, gradients=tuple(gradients))


def _place_updates(state: CompileState) -> CompileState:
    place_updates(state.graph, state.totals)
    return state


def _offload_variables(state: CompileState) -> CompileState:
    o = state.options
    gradients = offload_accumulators(state.graph, state.gradients, o.locations.is_off_chip, o.replicas)
    offload_variables(state.graph, o.locations.is_off_chip)
    return replace(state, gradients=tuple(gradients))


def _restore_anchored(state: CompileState) -> CompileState:
    restore_anchored(state.graph, [anchor.tensor for anchor in state.anchors])
    return state


def _check_anchors(state: CompileState) -> CompileState:
    check_anchors(state.graph, state.anchors)
    return state


def _prune(state: CompileState) -> CompileState:
    anchors, gradients = state.anchors, state.gradients
    prune(state.graph, [*(anchor.tensor for anchor in anchors), *(gradient.part for gradient in gradients)])
    return state


def _round_stochastically(state: CompileState) -> CompileState:
    round_stochastically(state.graph)
    halves = {g.total for g in state.gradients if state.graph.tensor(g.total).dtype is FLOAT16}
    return replace(state, gradients=tuple(replace(g, rounded=g.total in halves) for g in state.gradients))


def _check_gradients(state: CompileState) -> CompileState:
    check_gradients(state.graph)
    return state


# Graph of a step -> graph in the order of the program


def _keep_forward_pass(state: CompileState) -> CompileState:
    anchors = forward_anchors(state.graph, state.anchors)
    return replace(state, graph=forward_graph(state.graph, anchors), anchors=anchors, gradients=())


def _fuse_elementwise(state: CompileState) -> CompileState:
    anchors, gradients = state.anchors, state.gradients
    wanted = [*(a.tensor for a in anchors), *(g.part for g in gradients), *(g.total for g in gradients)]
    fuse(state.graph, wanted)
    fuse_updates(state.graph, wanted)
    return state


def _plan_loop_bodies(state: CompileState) -> CompileState:
    plan_bodies(state.graph, fused=state.options.fuse_elementwise)
    return state


def _recompute(state: CompileState) -> CompileState:
    if state.gradients:
        recompute(state.graph, state.options.recomputation, [anchor.tensor for anchor in state.anchors])
    return state


def _stage_inputs(state: CompileState) -> CompileState:
    stage_inputs(state.graph, state.options.streams.staged)
    return state


def _form_stages(state: CompileState) -> CompileState:
    pipeline, step = state.options.pipeline, state.options.step
    assert pipeline is not None
    trains = any(op.phase is Phase.BACKWARD for op in state.graph.ops)
    made = Pipelining.of(state.graph, pipeline.schedule, training=trains, iterations=pipeline.iterations)
    made.check(step.accumulation if step.accumulation > 1 else step.batches)
    return replace(state, pipelining=made)


def _insert_ipu_copies(state: CompileState) -> CompileState:
    insert_ipu_copies(state.graph, state.stages.of, state.totals)
    return state


def _offload_activations(state: CompileState) -> CompileState:
    if state.gradients:
        offload_activations(state.graph, state.options.locations.activation_storage())
    return state


def _merge_collectives(state: CompileState) -> CompileState:
    remote = {gradient.total for gradient in state.gradients if gradient.remote}
    merged = merge_collectives(state.graph, state.stages.of, state.options.bucket_bytes, remote)
    return replace(state, merged=merged)


# Graph -> program -> executable


def _lower(state: CompileState) -> CompileState:
    program = lower(
        state.graph,
        state.options,
        anchors=state.anchors,
        gradients=state.gradients,
        merged=state.merged,
        stages=state.stages,
    )
    return replace(state, program=program)


def _remove_host_io(state: CompileState) -> CompileState:
    assert state.program is not None
    return replace(state, program=without_host_io(state.program))


def _plan_memory(state: CompileState) -> CompileState:
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
    made = Executable(graph, program.instructions, plan, state.options.step, anchors, program.inputs)
    return replace(state, result=made)


def _training(state: CompileState) -> TrainingOptions:
    assert state.options.training is not None
    return state.options.training


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
    Pass("check-placement", "refuse annotations of IPUs and pipeline stages that cannot run", _check_placement),
    Pass("check-trained", "warn of initializers that are trained and hardly meant to be", _check_trained, _trains),
    Pass("assign-ipus", "give each op its IPU and its pipeline stage", _assign_ipus, _places),
    Pass("stride-channel-groups", "take every G-th channel as a group", _stride_channel_groups, _strides_groups),
    Pass(
        "anchored-constants", "compute anchored results of constants whose gradients are anchored", _unfold, _trains
    ),
    Pass("recognise-gelu", "write GELU as one op where it is spelled out", _recognise_gelu),
    Pass("read-transposed", "multiply by transposed matrices where they lie", _read_transposed),
    Pass("expand", "replace composite ops by the ops that define them", _expand),
    Pass("dropout", "give each active dropout random numbers of its own", _dropout),
    Pass("differentiate", "append the ops of the backward pass", _differentiate, _trains),
    Pass("fuse-softmax-nll", "merge the gradients of softmax and log likelihood", _fuse_softmax_nll, _trains),
    Pass("gradients", "list the gradients that replicas reduce, with their accumulators", _gradients, _trains),
    Pass("unscale-gradients", "count large gradients, and undo the loss scale", _unscale_gradients, _scales_loss),
    Pass("clip-gradients", "limit the norms of groups of gradients", _clip_gradients, _trains),
    Pass("update-weights", "append the weight updates with their optimiser states", _update_weights, _trains),
    Pass("change-loss-scale", "append the change of the loss scale", _change_loss_scale, _scales_loss),
    Pass("shard-variables", "divide weights and optimiser states between replicas", _shard_variables, _trains),
    Pass("place-updates", "put each weight update on the IPU of its weight", _place_updates, _trains),
    Pass("offload-variables", "load and store variables that are in Streaming Memory", _offload_variables),
    Pass("restored-anchors", "copy activations that are anchored as restored", _restore_anchored, _pipelines),
    Pass("check-anchors", "refuse anchors that are not tensors of the step", _check_anchors),
    Pass("prune", "drop ops and tensors that no anchor and no update needs", _prune),
    Pass("round-stochastically", "round FLOAT16 results by random numbers", _round_stochastically, _rounds),
    Pass(STEP_GRAPH, "refuse gradients of loops that cannot be differentiated", _check_gradients),
    # Graph of a step -> graph in the order of the program
    Pass("forward-only", "drop gradients and weight updates", _keep_forward_pass, _forward_only),
    Pass("fuse-elementwise", "merge chains of element-wise ops", _fuse_elementwise, _fuses),
    Pass("plan-loop-bodies", "plan the memory of loop bodies", _plan_loop_bodies),
    Pass("recompute", "repeat forward ops in the backward pass to save memory", _recompute, _trains),
    Pass("stage-inputs", "load inputs that wait in Streaming Memory", _stage_inputs, _has_host_io),
    Pass("form-stages", "form the stages of the pipeline", _form_stages, _pipelines),
    Pass("insert-ipu-copies", "sort the ops by stage, and copy tensors that another IPU reads", _insert_ipu_copies),
    Pass(
        "offload-activations",
        "keep activations in Streaming Memory until they are read",
        _offload_activations,
        _trains,
    ),
    Pass("merge-collectives", "sort the ops so that collectives between replicas become one", _merge_collectives),
    # Graph -> program -> executable
    Pass("lower", "make the program: loops, host I/O, collectives and ops", _lower),
    Pass("remove-host-io", "drop loads and stores if data stay on the device", _remove_host_io, _is_synthetic),
    Pass("plan-memory", "give each tensor its place in memory", _plan_memory),
)
