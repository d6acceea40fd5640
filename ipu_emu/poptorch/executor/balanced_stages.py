"""Balanced stages: assigns each op of a trace to a pipeline stage and an IPU such that loads are nearly equal.

A stage's load is its fraction of all operations plus its fraction of all bytes of weights and activations. No weight
is read on both sides of a cut, except one with distant readers, such as a tied embedding: it stays on its first IPU,
where the ops from its last readers on become one more stage.

    embedding  layer 0  layer 1 | layer 2  layer 3 | head (tied), loss
    stage 0, IPU 0                stage 1, IPU 1     stage 2, IPU 0
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ipu_emu.graph import Graph, Op, Role
from ipu_emu.ops import TABLE, Node
from ipu_emu.poptorch.errors import refusal

__all__ = ["balanced_stages"]

#: The largest distance of a weight's readers, as a fraction of all ops, at which they stay in one stage.
_FAR = 0.25
#: The op that changes a buffer.
_UPDATE = "CopyVarUpdate"
#: Steps of the bisection for the least possible load.
_HALVINGS = 40


def balanced_stages(graph: Graph, ipus: int) -> list[tuple[int, int]]:
    """Return (stage, IPU) of each op; raise poptorch.Error if the ops cannot be cut into as many parts."""
    readers = _readers(graph)
    far = {id_: found for id_, found in readers.items() if found[-1] - found[0] > _FAR * len(graph.ops)}
    cuts = _clean_cuts(len(graph.ops), [found for id_, found in readers.items() if id_ not in far])
    if len(cuts) < ipus - 1:
        raise refusal(
            f"The model can be cut into {len(cuts) + 1} parts between which no weight is shared, and {ipus} IPUs "
            "were asked for. Use fewer IPUs"
        )
    chosen = _chosen(list(accumulate(_loads(graph), initial=0.0)), cuts, ipus)
    places = [(part := bisect_right(chosen, index), part) for index in range(len(graph.ops))]
    return _with_updates_beside_readers(graph, _with_far_weights_at_home(places, far), readers)


def _readers(graph: Graph) -> dict[str, list[int]]:
    """The positions of the ops that read each weight, also through ops on weights only, such as a transpose."""
    of: dict[str, frozenset[str]] = {t.id: frozenset([t.id]) for t in graph.with_role(Role.WEIGHT)}
    found: dict[str, list[int]] = {}
    constant = {t.id for t in graph.with_role(Role.CONSTANT)}
    for index, op in enumerate(graph.ops):
        if op.type == _UPDATE:
            continue  # it is at the end of the graph, but is placed with the readers of the buffer
        inputs = [one for one in op.inputs if one]
        weights = frozenset[str]().union(*(of.get(one, frozenset()) for one in inputs))
        for id_ in weights:
            found.setdefault(id_, []).append(index)
        if weights and all(one in of or one in constant for one in inputs):
            of |= dict.fromkeys(op.outputs, weights)
    return found


def _clean_cuts(count: int, spans: Sequence[Sequence[int]]) -> list[int]:
    """The positions between ops that are outside all spans of readers."""
    depth = [0] * (count + 1)
    for span in spans:
        depth[span[0] + 1] += 1
        depth[span[-1] + 1] -= 1
    inside = list(accumulate(depth))
    return [cut for cut in range(1, count) if not inside[cut]]


def _loads(graph: Graph) -> list[float]:
    flops, sizes = [], []
    for op in graph.ops:
        flops.append(TABLE[op].cost(_node(graph, op)).flops)
        sizes.append(sum(graph.tensor(id_).nbytes for id_ in _kept(graph, op)))
    work, memory = max(sum(flops), 1), max(sum(sizes), 1)
    return [f / work + s / memory + 1e-9 for f, s in zip(flops, sizes, strict=True)]


def _node(graph: Graph, op: Op) -> Node:
    inputs = tuple(graph.tensor(id_) if id_ else None for id_ in op.inputs)
    return Node(op, inputs, (), tuple(graph.tensor(id_) for id_ in op.outputs if id_))


def _kept(graph: Graph, op: Op) -> list[str]:
    weights = [id_ for id_ in op.inputs if id_ and graph.tensor(id_).role is Role.WEIGHT]
    return [*weights, *(id_ for id_ in op.outputs if id_)]


def _chosen(done: Sequence[float], cuts: Sequence[int], parts: int) -> list[int]:
    """The cuts that minimise the largest part."""
    low, high = done[-1] / parts, done[-1]
    best = _packed(done, cuts, high, parts)
    for _ in range(_HALVINGS):
        limit = (low + high) / 2
        found = _packed(done, cuts, limit, parts)
        if found is None:
            low = limit
        else:
            high, best = limit, found
    assert best is not None
    return best


def _packed(done: Sequence[float], cuts: Sequence[int], limit: float, parts: int) -> list[int] | None:
    """Cuts into ``parts`` parts that are at most ``limit``, each as large as possible; None if there are none."""
    made: list[int] = []
    index = 0
    while len(made) < parts - 1:
        start = done[made[-1]] if made else 0.0
        last = len(cuts) - (parts - 1 - len(made))  # the latest cut that leaves enough cuts for the remaining parts
        following = index
        while following < last and done[cuts[following + 1]] - start <= limit:
            following += 1
        if done[cuts[following]] - start > limit:
            return None
        made.append(cuts[following])
        index = following + 1
    return made if done[-1] - (done[made[-1]] if made else 0.0) <= limit else None


def _with_far_weights_at_home(
    places: list[tuple[int, int]], far: Mapping[str, Sequence[int]]
) -> list[tuple[int, int]]:
    """Begin a stage on the first IPU of a weight wherever it is read on another one."""
    for readers in sorted(far.values(), key=lambda found: found[-1]):
        home = places[readers[0]][1]
        for index in readers:
            if places[index][1] != home:
                stage = places[index][0] + 1
                tail = [(stage + place[0] - places[index][0], place[1]) for place in places[index:]]
                tail = [(stage, home) if place[1] == places[index][1] else place for place in tail]
                places = places[:index] + tail
    return places


def _with_updates_beside_readers(
    graph: Graph, places: list[tuple[int, int]], readers: Mapping[str, Sequence[int]]
) -> list[tuple[int, int]]:
    made = {id_: index for index, op in enumerate(graph.ops) for id_ in op.outputs}
    beside = {
        index: readers.get(op.inputs[0], [made.get(op.inputs[1], index)])[0]
        for index, op in enumerate(graph.ops)
        if op.type == _UPDATE
    }
    return [places[beside.get(index, index)] for index in range(len(places))]
