"""Graph balance: the IPU and the stage of each op of a graph, such that the slowest IPU is as fast as possible.

    Gather  Add | LayerNorm  MatMul | ... | MatMul  Add || LayerNorm  MatMul | ...        | may be cut, || is cut
    unit 0        unit 1                    unit n         unit n + 1
    IPU 0                                                  IPU 1

A unit has one product by weights, or is a single op if there are too few of them. No weight is read on both sides of
a cut, unless its readers are far apart or nothing else is possible. The seconds are those of ``ipu-emu clock`` on a
GC200: in training those of the forward pass three times for products, and twice for other ops. Ops on weights only
are on the IPU of their first reader.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate, pairwise

from gcl import LINK_BANDWIDTH, LinkClass, sync_seconds
from ipu_emu.compiler.placement.balance import Chain, balance
from ipu_emu.compiler.placement.graph_cuts import CONVOLUTIONS, PRODUCTS, UPDATE, GraphCuts
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Op, Role
from ipu_emu.hardware import GC200
from ipu_emu.hardware.rates import TYPICAL, host_rate
from ipu_emu.ops import TABLE
from ipu_emu.program.memory_plan import node_in
from ipu_emu.program.op_cycles import op_cycles

#: The largest distance of a weight's readers, as a fraction of all ops, at which they stay on one IPU.
_FAR = 0.25
#: Copies of a weight that training needs, such as its gradient.
_COPIES = 3
#: The share of the memory for these and for activations of a micro-batch.
_SHARE = 0.6


class SharedWeights(Enum):
    """Where ops that read a weight far from its first reader are, such as the logits of a tied table."""

    HOME = "in further stages on the IPU of the first reader"
    LOGITS_HOME = "logits in a further stage on the IPU of their table; others as COPIED"
    COPIED = "in the stages of their neighbours, to which the weight is copied"
    TOGETHER = "in the stage of the first reader"


class MicroBatchWork(Enum):
    """What is done with a micro-batch, on which its time and its memory depend."""

    INFERENCE = "the forward pass"
    TRAINING = "both passes; activations are kept for the backward pass"
    RECOMPUTING = "both passes; most activations are computed again in the backward pass"

    @classmethod
    def of(cls, *, training: bool, recomputes: bool) -> MicroBatchWork:
        return (cls.RECOMPUTING if recomputes else cls.TRAINING) if training else cls.INFERENCE


class TooFewOpsError(EmulatorError):
    """A model with fewer ops than IPUs."""


def copy_seconds(nbytes: float) -> float:
    """Seconds of a copy from one IPU of a pipeline to the next."""
    return nbytes / LINK_BANDWIDTH[LinkClass.UP] + sync_seconds(1, GC200.clock)


def host_seconds(nbytes: float, ipus: int, transfers: int = 1) -> float:
    """Seconds of transfers of a replica of ``ipus`` IPUs with the host."""
    width = 1 << (ipus - 1).bit_length()
    return nbytes / host_rate(width) + transfers * sync_seconds(ipus, GC200.clock)


def balanced_places(
    graph: Graph,
    ratios: Sequence[float],
    *,
    work: MicroBatchWork = MicroBatchWork.TRAINING,
    shared: SharedWeights = SharedWeights.LOGITS_HOME,
) -> list[tuple[int, int]]:
    """Return (IPU, stage) of each op, for IPUs with these relative amounts of work; raise TooFewOpsError."""
    return _Division(graph, tuple(ratios), work, shared).places()


@dataclass(frozen=True)
class _Division:
    """A graph that is divided."""

    graph: Graph
    ratios: tuple[float, ...]
    work: MicroBatchWork
    shared: SharedWeights

    def places(self) -> list[tuple[int, int]]:
        """(IPU, stage) of each op."""
        parts = balance(self._chain, self.ratios, _SHARE * GC200.sram)
        homes = {index: (part, part) for unit, part in zip(self.units, parts, strict=True) for index in unit}
        if self.tied:
            home, last = homes[self._first_reader(next(iter(self.tied)))][0], len(self.ratios)
            homes |= dict.fromkeys(self.tied, (home, last if home < last - 1 else home))
        if self.shared is SharedWeights.HOME:
            homes = _with_readers_at_home(homes, self.readers.values())
        leaders = self._leaders(homes)
        return [homes[leaders[leader]] for leader in leaders]

    @cached_property
    def cuts(self) -> GraphCuts:
        return GraphCuts(self.graph)

    @cached_property
    def tied(self) -> dict[int, int]:
        """Indices of ops that are at home with the table that they read, not in the chain."""
        return self.cuts.tied if self.shared in (SharedWeights.HOME, SharedWeights.LOGITS_HOME) else {}

    @cached_property
    def order(self) -> list[int]:
        """Indices of the ops of the chain."""
        order = [index for index in self.cuts.computed if index not in self.tied]
        if len(order) < len(self.ratios):
            raise TooFewOpsError(
                f"There are fewer subgraphs ({len(order)}) than available shards ({len(self.ratios)}). Use fewer "
                "IPUs, or a larger model"
            )
        return order

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """Indices of the ops that read each weight, also through ops on weights only."""
        readers: dict[str, list[int]] = {}
        for index in self.cuts.computed:
            for weight in self._weights(self.graph.ops[index]):
                readers.setdefault(weight, []).append(index)
        return readers

    @cached_property
    def units(self) -> list[list[int]]:
        """Indices of the ops of each unit."""
        inside = self._inside
        tries = (
            [index for index in self.cuts.starts if not inside[index]],
            [index for index in self.order if not inside[index]],
            self.order,
        )
        divisions = (_divided(self.order, starts) for starts in tries)
        return next(units for units in divisions if len(units) >= len(self.ratios))

    @cached_property
    def _inside(self) -> list[int]:
        """The number of weights that are read on both sides of a cut before each op, and should not be."""
        depth, most = [0] * (len(self.graph.ops) + 1), _FAR * len(self.graph.ops)
        for readers in self.readers.values():
            indices = [index for index in readers if index not in self.tied]
            if indices and (self.shared is SharedWeights.TOGETHER or indices[-1] - indices[0] <= most):
                depth[indices[0] + 1] += 1
                depth[indices[-1] + 1] -= 1
        return list(accumulate(depth))

    @cached_property
    def _chain(self) -> Chain:
        """The units with their seconds and bytes."""
        counted = set[str]()
        *loads, fixed = (self._load(unit, counted) for unit in (*self.units, self.tied))
        seconds, nbytes = zip(*loads, strict=True)
        itemsize = max((t.dtype.itemsize for t in self.graph.with_role(Role.WEIGHT) if t.dtype.is_float), default=4)
        crossing = (self.cuts.crossing[unit[0]] for unit in self.units)
        copies = [sum(copy_seconds(values * itemsize) for values in cut) for cut in crossing]
        return Chain(seconds, nbytes, copies, fixed)

    def _load(self, indices: Iterable[int], counted: set[str]) -> tuple[float, float]:
        """Seconds and bytes of ops; weights and inputs that are in ``counted`` are not counted again."""
        seconds, nbytes, training = 0.0, 0, self.work is not MicroBatchWork.INFERENCE
        keeps = self.work is MicroBatchWork.TRAINING
        for op in map(self.graph.ops.__getitem__, indices):
            weights = [id for id in self._weights(op) if id not in counted]
            inputs = [id for id in dict.fromkeys(op.inputs) if id and id not in counted and self._is_input(id)]
            results = [id for id in op.outputs if id in self.graph.outputs and not training]
            seconds += sum(host_seconds(self.graph.tensor(id).nbytes, len(self.ratios)) for id in inputs + results)
            counted.update(weights, inputs)
            nbytes += sum(self.graph.tensor(id).nbytes for id in weights) * (_COPIES if training else 1)
            if TABLE[op].view_of is None:
                nbytes += sum(self.graph.tensor(id).nbytes for id in op.outputs if id and keeps)
                cycles = op_cycles(node_in(self.graph, op), GC200, GC200.tiles, TYPICAL).total
                passes = (3 if op.type in CONVOLUTIONS | PRODUCTS else 2) if training else 1
                seconds += passes * cycles / GC200.clock
        return seconds, float(nbytes)

    def _weights(self, op: Op) -> list[str]:
        """The weights that an op reads, also through ops on weights only."""
        return list(dict.fromkeys(self.cuts.weights[id] for id in op.inputs if id in self.cuts.weights))

    def _is_input(self, id: str) -> bool:
        return self.graph.tensor(id).role is Role.INPUT

    def _first_reader(self, tied: int) -> int:
        """The index of the first op that reads the table of a tied product."""
        return min(readers[0] for readers in self.readers.values() if tied in readers)

    def _leaders(self, homes: Mapping[int, object]) -> list[int]:
        """For each op, the index of the op that it follows: itself, or a reader of what it makes or changes."""
        producers = {id: index for index, op in enumerate(self.graph.ops) for id in op.outputs}
        leaders, reader = list(range(len(self.graph.ops))), {id: readers[0] for id, readers in self.readers.items()}
        for index, op in reversed([*enumerate(self.graph.ops)]):
            if op.type == UPDATE:
                leaders[index] = reader.get(op.inputs[0], producers.get(op.inputs[1], self.order[0]))
            elif index not in homes:
                read = [reader[id] for id in op.outputs if id in reader]
                leaders[index] = min(read or [reader[id] for id in op.inputs if id in reader], default=self.order[0])
            if op.type != UPDATE:
                reader |= {id: leaders[index] for id in op.inputs if id not in self.readers}
        return leaders


def _divided(indices: Sequence[int], starts: Iterable[int]) -> list[list[int]]:
    """``indices`` in groups that begin at ``starts``."""
    ends = sorted({bisect_left(indices, start) for start in starts} | {0, len(indices)})
    return [list(indices[first:end]) for first, end in pairwise(ends)]


def _with_readers_at_home(
    places: dict[int, tuple[int, int]], shared: Iterable[Sequence[int]]
) -> dict[int, tuple[int, int]]:
    """Begin a stage on the first IPU of a weight wherever it is read on another one."""
    for readers in sorted(shared, key=lambda readers: readers[-1]):
        home = places[readers[0]][0]
        for reader in readers:
            ipu, stage = places[reader]
            if ipu != home:
                tail = {index: (own, later + 1) for index, (own, later) in places.items() if index >= reader}
                tail |= {index: (home, stage + 1) for index, (own, _) in tail.items() if own == ipu}
                places = places | tail
    return places
