"""Autoshard: divides a model into as many parts as there are IPUs, by work and memory.

The ops stay in their order: part 0 is the first piece of them, part 1 the next. Each cut is made where it comes
closest to the requested ratios, preferably where no input and no weight is read on both sides, unless that would move
the cut by more than half a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.ops import TABLE, Node

__all__ = ["TooFewOpsError", "autoshard"]


#: The most by which a cut may be moved so that no input or weight is read on both sides, in parts.
_TOLERANCE = 0.5


class TooFewOpsError(EmulatorError):
    """A model with fewer ops than IPUs."""


def autoshard(graph: Graph, ops: Sequence[Op], ratios: Sequence[float], *, apart: bool = False) -> list[int]:
    """Return the part of each of ``ops``, for parts of these relative sizes.

    ``apart``: use only cuts where no weight is read on both sides, if there are any, however unequal the parts
    become.
    """
    if len(ops) < len(ratios):
        raise TooFewOpsError(
            f"There are fewer subgraphs ({len(ops)}) than available shards ({len(ratios)}). Use fewer IPUs, or a "
            "larger model"
        )
    weights = _weights(graph, ops)
    done, clean = list(accumulate(weights)), _clean_cuts(graph, ops)
    cuts: list[int] = []
    for wanted in list(accumulate(ratios))[:-1]:
        target = wanted / sum(ratios) * done[-1]
        left = len(ratios) - 1 - len(cuts)  # remaining cuts, this one included
        free = range((cuts[-1] if cuts else 0) + 1, len(ops) - left + 1)
        if not free:
            break
        near = float("inf") if apart else _TOLERANCE * min(ratios) / sum(ratios) * done[-1]
        best = [cut for cut in free if cut in clean and abs(done[cut - 1] - target) <= near] or free
        cuts.append(min(best, key=lambda cut: abs(done[cut - 1] - target)))
    return [sum(cut <= index for cut in cuts) for index in range(len(ops))]


def _weights(graph: Graph, ops: Sequence[Op]) -> list[float]:
    """Return the cost of each op: its share of all operations plus its share of all weights and activations."""
    flops = [TABLE[op].cost(_node(graph, op)).flops for op in ops]
    sizes = [sum(tensor.nbytes for tensor in _kept(graph, op)) for op in ops]
    return [f / max(sum(flops), 1) + s / max(sum(sizes), 1) + 1e-9 for f, s in zip(flops, sizes, strict=True)]


def _node(graph: Graph, op: Op) -> Node:
    inputs = tuple(graph.tensor(id) if id else None for id in op.inputs)
    return Node(op, inputs, (), tuple(graph.tensor(id) for id in op.outputs if id))


def _kept(graph: Graph, op: Op) -> list[Tensor]:
    weights = [id for id in op.inputs if id and graph.tensor(id).role is Role.WEIGHT]
    return [graph.tensor(id) for id in (*weights, *op.outputs) if id]


def _clean_cuts(graph: Graph, ops: Sequence[Op]) -> set[int]:
    """Return the positions between ops such that no input and no weight is read on both sides.

    What is computed of one weight alone, such as its transpose, counts as that weight.
    """
    spans: dict[str, tuple[int, int]] = {}
    read: dict[str, str] = {}
    for index, op in enumerate(ops):
        for id in filter(None, op.inputs):
            if graph.tensor(id).role in (Role.WEIGHT, Role.INPUT):
                read[id] = id
            if source := read.get(id):
                spans[source] = (spans.get(source, (index, index))[0], index)
        if len(op.inputs) == 1 and op.inputs[0] in read and graph.tensor(op.inputs[0]).role is not Role.INPUT:
            read |= dict.fromkeys(op.outputs, read[op.inputs[0]])
    return {cut for cut in range(1, len(ops)) if not any(first < cut <= last for first, last in spans.values())}
