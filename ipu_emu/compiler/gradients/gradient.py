"""Gradient: a gradient that replicas reduce before the weight updates; that of a tied table has two sums."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ipu_emu.compiler.placement.tensor_places import tensor_places
from ipu_emu.graph import Graph, Op, StepPhase


class GradientReduction(Enum):
    """How the gradients of micro-batches and replicas are combined."""

    SUM = "Sum"
    MEAN_POST = "Mean, divided at the end"
    MEAN_RUNNING = "Mean, kept as a running mean"


@dataclass(frozen=True)
class Gradient:
    """The gradient of a weight: ``part`` for one micro-batch, ``total`` for all micro-batches of a batch.

    Totals are reduced in buckets, one for each element type. A ``scattered`` one is in no bucket: an op of the update
    reduces it and gives each replica a shard, or it is not reduced at all. A ``rounded`` one is rounded
    stochastically. The total of a ``remote`` one is in Streaming Memory, and reduced after it has been loaded. A
    total that ``joins`` another is added to it after the last micro-batch.
    """

    weight: str
    part: str
    total: str
    scattered: bool = False
    rounded: bool = False
    remote: bool = False
    joins: str = ""


#: The ops whose results are the gradients of look-ups.
_LOOK_UPS = ("GatherGrad", "GroupedGatherGrad")


def with_sums_of_their_own(graph: Graph, gradients: Sequence[Gradient], unsplit: Collection[str]) -> list[Gradient]:
    """Return ``gradients`` with two in place of that of each tied table, unless its total is in ``unsplit``.

        Gradient___w = Add(MatMulT:0, GatherGrad:0)           Accum___w/tied += MatMulT:0
        Accum___w += Gradient___w                        ->   Accum___w      += GatherGrad:0
                                                              after the last micro-batch: Accum___w += Accum___w/tied

    In a pipeline the backward pass of the product comes many micro-batches before that of the look-up, and a gradient
    as large as the table would be kept for each of them. Separate sums avoid this. The order of additions depends
    only on the graph, so that results are bitwise the same with every schedule and placement.
    """
    producers, places = graph.producers(), tensor_places(graph)
    separate = []
    for gradient in gradients:
        parts = _parts(producers, gradient) if gradient.total not in unsplit else None
        if parts is None:
            separate.append(gradient)
            continue
        home = places[gradient.weight].ipu
        looked_up, other = sorted(parts, key=lambda id: places[id].ipu != home)  # stable: ties keep the look-up first
        total = graph.tensor(gradient.total)
        tied = graph.add(replace(total, id=graph.unused(f"{total.id}/tied"))).id
        separate.append(replace(gradient, part=looked_up))
        separate.append(replace(gradient, part=other, total=tied, scattered=True, joins=gradient.total))
    return separate


def _parts(producers: Mapping[str, Op], gradient: Gradient) -> tuple[str, str] | None:
    """The gradient of the look-up, and the other summand; None if there is no such sum."""
    op = producers[gradient.part]
    if op.type != "Add" or len(op.inputs) != 2:
        return None
    terms = [producers.get(id) for id in op.inputs]
    if (
        any(term is None or term.phase is not StepPhase.BACKWARD or term.guard != op.guard for term in terms)
        or op.guard
    ):
        return None
    looks_up = [term is not None and term.type in _LOOK_UPS for term in terms]
    if looks_up[0] == looks_up[1]:
        return None
    first, second = op.inputs
    return (first, second) if looks_up[0] else (second, first)
