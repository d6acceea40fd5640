"""Training: gradients, their accumulators and the weight updates of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from ipu_emu.compiler.fusion.softmax_nll import fuse_softmax_nll
from ipu_emu.compiler.gradients.autodiff import differentiate
from ipu_emu.compiler.gradients.gradient import Gradient, Reduction
from ipu_emu.compiler.memory.offloading import offload_accumulators, offload_variables
from ipu_emu.compiler.optimisers.automatic_loss_scaling import LossScaler
from ipu_emu.compiler.optimisers.gradient_clipping import clip_norms
from ipu_emu.compiler.optimisers.optimiser_sharding import Divide, shard_variables
from ipu_emu.compiler.optimisers.update_rule import UpdateRule
from ipu_emu.compiler.placement.tensor_places import place_updates, tensor_places
from ipu_emu.compiler.rewriting.dropout_keys import with_dropout
from ipu_emu.compiler.rewriting.pruning import prune
from ipu_emu.compiler.rewriting.reserved_prefixes import GRADIENT
from ipu_emu.compiler.rewriting.stochastic_rounding import round_stochastically
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Role, Tensor
from ipu_emu.graph.dtype import FLOAT16
from ipu_emu.ops import expanded
from ipu_emu.ops.control.loop_and_while import check_gradients

__all__ = ["Gradient", "Reduction", "inference_graph", "remaining_divisor", "training_graph"]


def remaining_divisor(reduction: Reduction, *, accumulation: int, replicas: int) -> int:
    """Return by what weight updates divide reduced gradients: A x R where a mean is taken at the end, else 1."""
    return accumulation * replicas if reduction is Reduction.MEAN_POST else 1


def training_graph(
    model: Graph,
    *,
    loss: str,
    optimizer: UpdateRule,
    anchors: Iterable[str],
    accumulation: int,
    replicas: int,
    reduction: Reduction,
    scaler: LossScaler | None = None,
    stochastic_rounding: bool = False,
    divide: Divide | None = None,
    off_chip: Callable[[Tensor], bool] | None = None,
) -> tuple[Graph, list[Gradient]]:
    """The graph of a training step, and the gradients that are reduced between its two halves.

    ``divide`` tells the variables that are divided between replicas, ``off_chip`` those in Streaming Memory.
    """
    graph = with_dropout(expanded(model))
    dtype = graph.tensor(loss).dtype
    role = Role.CONSTANT if optimizer.loss_scaling.constant else Role.SCALAR
    seed = Tensor(optimizer.loss_scaling_id(dtype), dtype, (), role)
    graph.add(seed, np.array(optimizer.loss_scaling.value, dtype.numpy))
    differentiate(graph, loss, scaler.scaled_seed(graph, seed, tensor_places(graph)[loss]) if scaler else seed)
    fuse_softmax_nll(graph)
    gradients = []
    for weight in graph.with_role(Role.WEIGHT):
        if GRADIENT + weight.id in graph.tensors:
            gradients.append(_accumulated(graph, weight, optimizer, accumulation))
    divisor = remaining_divisor(reduction, accumulation=accumulation, replicas=replicas)
    totals = {gradient.weight: gradient.total for gradient in gradients}
    counted = _counted(graph, scaler, gradients, accumulation) if scaler else []
    if scaler:
        totals = scaler.undo(graph, totals)
    totals = clip_norms(graph, optimizer, totals, divisor=divisor, replicas=replicas)
    for weight_id, total in totals.items():
        optimizer.append(graph, graph.tensor(weight_id), total, divisor=divisor)
    if scaler:
        for count in counted:
            scaler.change(graph, count.total, seed)
    if divide:
        gradients = shard_variables(graph, gradients, divide, replicas, reduction)
    gradients += counted
    place_updates(graph, {gradient.total: gradient.part for gradient in gradients})
    if off_chip:
        gradients = offload_accumulators(graph, gradients, off_chip, replicas)
        offload_variables(graph, off_chip)
    _finish(graph, [*anchors, *(gradient.part for gradient in gradients)], stochastic_rounding)
    if stochastic_rounding:
        gradients = [replace(g, rounded=graph.tensor(g.total).dtype is FLOAT16) for g in gradients]
    return graph, gradients


def _counted(graph: Graph, scaler: LossScaler, gradients: Sequence[Gradient], accumulation: int) -> list[Gradient]:
    """The count of large gradients travels as if it were the gradient of a weight without a name."""
    if not gradients:
        return []
    part = scaler.count(graph, [gradient.part for gradient in gradients])
    if accumulation == 1:
        return [Gradient("", part, part)]
    total = graph.unused(f"{part}/accumulated")
    graph.add(replace(graph.tensor(part), id=total))
    return [Gradient("", part, total)]


def inference_graph(
    model: Graph,
    *,
    anchors: Iterable[str],
    stochastic_rounding: bool = False,
    off_chip: Callable[[Tensor], bool] | None = None,
) -> Graph:
    """The graph of an inference step: what the anchors need."""
    graph = with_dropout(expanded(model), training=False)
    if off_chip:
        offload_variables(graph, off_chip)
    _finish(graph, anchors, stochastic_rounding)
    return graph


def _accumulated(graph: Graph, weight: Tensor, optimizer: UpdateRule, accumulation: int) -> Gradient:
    """Without accumulation the part is the total; with it, the total has an id of its own."""
    part = GRADIENT + weight.id
    if accumulation == 1:
        graph.tensors[part] = replace(graph.tensors[part], group=weight.group)
        return Gradient(weight.id, part, part)
    total = optimizer.accumulator(weight.id)
    # A model that was saved in the middle of training brings its accumulators along, which are 0 between two steps.
    graph.data.pop(total, None)
    graph.tensors[total] = replace(weight, id=total, dtype=optimizer.accum_type or weight.dtype, role=Role.COMPUTED)
    return Gradient(weight.id, part, total)


def _finish(graph: Graph, wanted: Iterable[str], stochastic_rounding: bool) -> None:
    wanted = list(wanted)
    for id in wanted:
        if id not in graph.tensors:
            raise EmulatorError(
                f"Anchor tensor '{id}' not in tensors. Anchor a tensor of the model, or a gradient of one"
            )
    prune(graph, wanted)
    check_gradients(graph)
    if stochastic_rounding:
        round_stochastically(graph)
