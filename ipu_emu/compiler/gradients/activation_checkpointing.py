"""Activation checkpointing: which results of the forward pass the backward pass keeps, and which it recomputes.

STANDARD cuts the forward pass where few bytes are live, such that the checkpoints (the tensors that cross a cut) and
the largest segment between two cuts take the least memory in total. With equal segments that is about 2 sqrt(n) for n
ops (T. Chen et al., Training deep nets with sublinear memory cost, 2016). A stage of a pipeline keeps the checkpoints
of several micro-batches, but recomputes a segment of one at a time: there, fewer checkpoints take less.

    forward   a  b  c | d  e  f | g  h  i        kept: c, f, and the last part, which the backward pass needs at once
    backward  i' h' g'  (d e)  f' e' d'  (a b)  c' b' a'

Tensors that are read at another place are kept, and so are tensors that cannot be recomputed: results of collectives,
and results that depend on a value which has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, pairwise

from ipu_emu.compiler.annotations import RECOMPUTE
from ipu_emu.graph import Graph, Op, Place, Role, StepPhase
from ipu_emu.ops import TABLE
from ipu_emu.ops.communication.collective_ops import is_replica_collective

#: The values of the annotation that keeps or recomputes the outputs of an op.
_KEEP, _AGAIN = 1, 2

_NORMS = {"BatchNormTrain", "BatchNormShared", "GroupNormalization", "LpNormalization", "LRN"}
#: The number of segment sizes that are tried.
_SIZES = 64


class Recomputation(Enum):
    """Which activations are recomputed; the names are PopART's."""

    NONE = "NoRecompute"
    STANDARD = "Standard"
    NORM_ONLY = "NormOnly"
    ALL = "RecomputeAll"
    PIPELINE = "Pipeline"


def recomputed_tensors(
    graph: Graph, kind: Recomputation, wanted: Iterable[str], copies: Callable[[int, int], int]
) -> set[str]:
    """Return the ids of the tensors that the backward pass recomputes; ``wanted`` tensors are always kept.

    ``copies(n, s)`` is for how many micro-batches stage s of n keeps its checkpoints.
    """
    return _Choice(graph, set(wanted), copies).of(kind)


class _Choice:
    def __init__(self, graph: Graph, wanted: set[str], copies: Callable[[int, int], int]) -> None:
        self.graph, self.copies = graph, copies
        self.forward = [op for op in graph.ops if op.phase is StepPhase.FORWARD]
        self.stored = wanted | set(_read_elsewhere(graph))
        changed = _changed(self.forward)
        self.repeatable = [op for op in self.forward if _is_repeatable(op, changed)]
        self.last = max((op.place for op in self.forward), default=Place())

    def of(self, kind: Recomputation) -> set[str]:
        chosen = {id for op in self.by_kind(kind) for id in op.outputs} - self.stored
        for op in self.repeatable:
            annotation = op.attributes.get(RECOMPUTE)
            if annotation == _AGAIN:
                chosen.update(id for id in op.outputs if id not in self.stored)
            if annotation == _KEEP:
                chosen.difference_update(op.outputs)
        return chosen

    def by_kind(self, kind: Recomputation) -> Iterable[Op]:
        if kind is Recomputation.ALL:
            return self.repeatable
        if kind is Recomputation.PIPELINE:
            return [op for op in self.repeatable if op.place.stage < self.last.stage or not self.last.stage]
        if kind is Recomputation.NORM_ONLY:
            return self.norms()
        return self.standard() if kind is Recomputation.STANDARD else ()

    def norms(self) -> Iterator[Op]:
        """Ops to recompute: normalisations, and element-wise ops that need only their results and kept tensors."""
        cheap: set[str] = set()
        for op in self.repeatable:
            computed = {id for id in op.inputs if id and self.graph.tensor(id).role is Role.COMPUTED}
            follows = computed and computed <= cheap and TABLE[op].elementwise
            if op.type in _NORMS or follows:
                cheap.update(op.outputs)
                yield op

    def standard(self) -> Iterator[Op]:
        for place in sorted({op.place for op in self.repeatable}):
            ops = [op for op in self.repeatable if op.place == place]
            copies = self.copies(self.last.stage + 1, place.stage)
            yield from _Parts.of(self.graph, ops, self.stored, copies).again(at_once=place == self.last)


def _read_elsewhere(graph: Graph) -> Iterator[str]:
    """Yield the tensors that are read at another place than where they are made, or by a weight update."""
    places = {id: op.place for op in graph.ops for id in op.outputs if op.phase is StepPhase.FORWARD}
    for op in graph.ops:
        for id in op.inputs:
            if id in places and (op.place != places[id] or op.phase is StepPhase.UPDATE):
                yield id


def _changed(ops: Iterable[Op]) -> set[str]:
    """Return the ids of the tensors that the forward pass changes in place, before and after the change."""
    return {id for op in ops for out, index in TABLE.in_place(op) for id in (out, op.inputs[index])}


def _is_repeatable(op: Op, changed: set[str]) -> bool:
    return not TABLE[op].updates and not is_replica_collective(op) and changed.isdisjoint(op.inputs)


@dataclass(frozen=True)
class _Parts:
    """The ops of one place, in order.

    ``sizes`` has the bytes of the outputs of each op, ``crossing`` the bytes that are live before each op.
    Checkpoints are kept for ``copies`` micro-batches.
    """

    ops: Sequence[Op]
    sizes: Sequence[int]
    crossing: Sequence[int]
    ends: Mapping[str, int]  # last reader of each output, views included
    starts: Mapping[str, int]
    nbytes: Mapping[str, int]
    copies: int

    @classmethod
    def of(cls, graph: Graph, ops: Sequence[Op], stored: set[str], copies: int) -> _Parts:
        """Measure the ops; tensors that are ``stored`` in any case cost nothing."""
        roots: dict[str, str] = {}
        starts: dict[str, int] = {}
        ends: dict[str, int] = {}
        for number, op in enumerate(ops):
            for id in op.inputs:
                if id in roots:
                    ends[roots[id]] = number
            view = TABLE[op].view_of
            source = None if view is None else roots.get(op.inputs[view])
            for output in filter(None, op.outputs):
                roots[output] = source or output
                starts.setdefault(roots[output], number)
        nbytes = {id: 0 if id in stored else graph.tensor(id).nbytes for id in starts}
        sizes, change = [0] * len(ops), [0] * (len(ops) + 1)
        for id, start in starts.items():
            sizes[start] += nbytes[id]
            change[start + 1] += nbytes[id]
            change[min(ends.get(id, start) + 1, len(ops))] -= nbytes[id]
        return cls(ops, sizes, list(accumulate(change)), ends, starts, nbytes, copies)

    def again(self, *, at_once: bool) -> Iterator[Op]:
        """The ops between checkpoints; with ``at_once`` the backward pass directly follows the last segment."""
        total = sum(self.sizes)
        tries = {tuple(self.cuts(total / count)) for count in range(1, _SIZES + 1)}
        cuts = min(sorted(tries), key=lambda cuts: self.peak(cuts, at_once=at_once))
        crossing = self.crossing_any(cuts)
        end = (cuts[-1] if cuts else 0) if at_once else len(self.ops)
        for op in self.ops[:end]:
            if crossing.isdisjoint(op.outputs):
                yield op

    def cuts(self, limit: float) -> Iterator[int]:
        """Positions to cut, with about ``limit`` bytes between them, each where the fewest bytes cross it."""
        start, size = 0, 0
        for end in range(1, len(self.ops)):
            size += self.sizes[end - 1]
            if size >= limit:
                start = min(range(end, start, -1), key=lambda index: self.crossing[index])
                yield start
                size = sum(self.sizes[start:end])

    def crossing_any(self, cuts: Sequence[int]) -> set[str]:
        """The tensors that are made before a cut and read after it."""
        lives = [(id, start, self.ends.get(id, start)) for id, start in self.starts.items()]
        return {id for id, start, end in lives if any(start < cut <= end for cut in cuts)}

    def peak(self, cuts: Sequence[int], *, at_once: bool) -> int:
        """Bytes of the checkpoints plus those of the largest segment."""
        crossing = self.crossing_any(cuts)
        sizes = list(self.sizes)
        for id in crossing:
            sizes[self.starts[id]] -= self.nbytes[id]
        bounds = [0, *cuts, len(self.ops)]
        parts = [sum(sizes[a:b]) for a, b in pairwise(bounds)]
        held = self.copies * sum(self.nbytes[id] for id in crossing)
        return held + (max(parts) if cuts or not at_once else parts[0])
