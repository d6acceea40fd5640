"""Training: gradients, their accumulators and the weight updates of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Role, Tensor
from ipu_emu.ops import expanded
from ipu_emu.transforms.autodiff import differentiate
from ipu_emu.transforms.clipping import clip_norms
from ipu_emu.transforms.ids import GRADIENT
from ipu_emu.transforms.optimizer import Rule
from ipu_emu.transforms.patterns import fuse_softmax_nll
from ipu_emu.transforms.pruning import prune

__all__ = ["Gradient", "Reduction", "inference_graph", "shares", "training_graph"]


class Reduction(Enum):
    """How gradients of micro-batches and replicas become one."""

    SUM = "Sum"
    MEAN_POST = "Mean, divided at the end"
    MEAN_RUNNING = "Mean, kept as a running mean"


@dataclass(frozen=True)
class Gradient:
    """A weight's gradient: ``part`` is of one micro-batch, ``total`` of a batch, in the bucket of its type."""

    weight: str
    part: str
    total: str


def shares(reduction: Reduction, *, accumulation: int, replicas: int) -> int:
    """By what the update still has to divide the reduced gradient."""
    return accumulation * replicas if reduction is Reduction.MEAN_POST else 1


def training_graph(
    model: Graph,
    *,
    loss: str,
    optimizer: Rule,
    anchors: Iterable[str],
    accumulation: int,
    replicas: int,
    reduction: Reduction,
) -> tuple[Graph, list[Gradient]]:
    """The graph of a training step, and the gradients that are reduced between its two halves."""
    graph = expanded(model)
    dtype = graph.tensor(loss).dtype
    role = Role.CONSTANT if optimizer.loss_scaling.constant else Role.SCALAR
    seed = Tensor(optimizer.loss_scaling_id(dtype), dtype, (), role)
    graph.add(seed, np.array(optimizer.loss_scaling.value, dtype.numpy))
    differentiate(graph, loss, seed)
    fuse_softmax_nll(graph)
    gradients = []
    for weight in graph.with_role(Role.WEIGHT):
        if GRADIENT + weight.id in graph.tensors:
            gradients.append(_accumulated(graph, weight, optimizer, accumulation))
    divisor = shares(reduction, accumulation=accumulation, replicas=replicas)
    totals = clip_norms(graph, optimizer, {g.weight: g.total for g in gradients}, shares=divisor)
    for weight_id, total in totals.items():
        optimizer.append(graph, graph.tensor(weight_id), total, shares=divisor)
    _finish(graph, [*anchors, *(gradient.part for gradient in gradients)])
    return graph, gradients


def inference_graph(model: Graph, *, anchors: Iterable[str]) -> Graph:
    """The graph of an inference step: what the anchors need."""
    graph = expanded(model)
    _finish(graph, anchors)
    return graph


def _accumulated(graph: Graph, weight: Tensor, optimizer: Rule, accumulation: int) -> Gradient:
    """Without accumulation the part is the total; with it, the total has an id of its own."""
    part = GRADIENT + weight.id
    if accumulation == 1:
        graph.tensors[part] = replace(graph.tensors[part], group=weight.group)
        return Gradient(weight.id, part, part)
    total = optimizer.accumulator(weight.id)
    graph.add(replace(weight, id=total, dtype=optimizer.accum_type or weight.dtype, role=Role.COMPUTED))
    return Gradient(weight.id, part, total)


def _finish(graph: Graph, wanted: Sequence[str] | Iterable[str]) -> None:
    wanted = list(wanted)
    for id in wanted:
        if id not in graph.tensors:
            raise EmulatorError(
                f"Anchor tensor '{id}' not in tensors. Anchor a tensor of the model, or a gradient of one"
            )
    prune(graph, wanted)
