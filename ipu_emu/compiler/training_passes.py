"""Passes that make the graph of a training step: backward pass, reduced gradients, updates, sharded variables."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from ipu_emu.compiler.compile_state import CompileState
from ipu_emu.compiler.gradients.autodiff import differentiate
from ipu_emu.compiler.gradients.gradient import Gradient, with_sums_of_their_own
from ipu_emu.compiler.gradients.trained_weights import ExportedModule, check_trained, doubts
from ipu_emu.compiler.memory.offloading import offload_accumulators, offload_variables
from ipu_emu.compiler.optimisers.automatic_loss_scaling import STATISTICS, check_loss_scaling
from ipu_emu.compiler.optimisers.update_sharding import shard_variables
from ipu_emu.compiler.placement.tensor_places import tensor_places
from ipu_emu.compiler.rewriting.reserved_prefixes import GRADIENT
from ipu_emu.graph import Role, Tensor
from ipu_emu.graph.dtype import FLOAT


def check_weights(state: CompileState) -> CompileState:
    """Train the weights that the module of an exported model trained, if the options name none."""
    trained = state.training.trained
    check_trained(state.graph, trained or ())
    doubt = doubts(state.graph, trained)
    if doubt:
        warnings.warn(doubt, stacklevel=2)
    module = ExportedModule.of(state.graph)
    if module is None or trained is not None:
        return state
    training = replace(state.training, trained=module.trained(state.graph))
    return replace(state, options=replace(state.options, training=training))


def append_gradients(state: CompileState) -> CompileState:
    graph, training = state.graph, state.training
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


def list_gradients(state: CompileState) -> CompileState:
    trained = state.training.trained
    weights = [w for w in state.graph.with_role(Role.WEIGHT) if GRADIENT + w.id in state.graph.tensors]
    weights = [w for w in weights if trained is None or w.id in trained]
    gradients = [_gradient(state, weight) for weight in weights]
    inputs = {gradient.weight: gradient.total for gradient in gradients}
    if state.options.sums_tied_tables_apart:
        gradients = with_sums_of_their_own(state.graph, gradients, set(state.anchored))
    return replace(state, gradients=tuple(gradients), update_inputs=inputs)


def _gradient(state: CompileState, weight: Tensor) -> Gradient:
    """The total of a gradient: without accumulation the gradient of the micro-batch, else a new tensor."""
    graph, rule, part = state.graph, state.training.rule, GRADIENT + weight.id
    if state.options.step.accumulation == 1:
        graph.tensors[part] = replace(graph.tensors[part], group=weight.group)
        return Gradient(weight.id, part, part)
    total = rule.accumulator(weight.id)
    # A model that was saved in the middle of training has its accumulators, which are 0 between two steps.
    graph.data.pop(total, None)
    graph.tensors[total] = replace(weight, id=total, dtype=rule.accum_type or weight.dtype, role=Role.COMPUTED)
    return Gradient(weight.id, part, total)


def unscale_gradients(state: CompileState) -> CompileState:
    """Remove the loss scale from gradients; the counts of small and large elements are reduced like a gradient."""
    scaler, graph = state.training.loss_scaler, state.graph
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


def append_updates(state: CompileState) -> CompileState:
    graph, divisor = state.graph, state.options.remaining_divisor
    for weight, gradient in state.update_inputs.items():
        state.training.rule.append(graph, graph.tensor(weight), gradient, divisor=divisor)
    return state


def change_loss_scale(state: CompileState) -> CompileState:
    graph, training = state.graph, state.training
    assert training.loss_scaler is not None
    training.loss_scaler.invert(graph)
    for count in (gradient for gradient in state.gradients if not gradient.weight):
        training.loss_scaler.change(graph, count.total)
    return state


def shard_updates(state: CompileState) -> CompileState:
    o, anchored = state.options, set(state.anchored)
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


def offload_updates(state: CompileState) -> CompileState:
    o = state.options
    gradients = offload_accumulators(state.graph, state.gradients, o.locations.is_off_chip, o.replicas)
    offload_variables(state.graph, o.locations.is_off_chip)
    return replace(state, gradients=tuple(gradients))
