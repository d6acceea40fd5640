"""Accumulation: the instructions that sum the gradients of micro-batches, or keep their running mean.

A sum in Streaming Memory is loaded and stored for every micro-batch.

    CountMicroBatch keep, take                    for running means
    RemoteLoad    near = RemoteLoad(Accum___w)    off chip
    AccumulateGradient near += Gradient___w
    RemoteStore   RemoteUpdate(Accum___w, near)   off chip

After the last micro-batch, a total that joins another is added to that.

    IpuCopy       Accum___w/tied/ipu0 = IpuCopy(Accum___w/tied)     from another IPU
    Compute       Accum___w = AddInto(Accum___w, Accum___w/tied/ipu0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ipu_emu.compiler.gradients.gradient import Gradient
from ipu_emu.compiler.lowering.pipelining import Stages
from ipu_emu.compiler.placement.ipu_copies import COPY
from ipu_emu.graph import Graph, Op, Place, Role, StepPhase, Tensor, id_on_ipu, original_of
from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops.communication.memory_copy_ops import REMOTE_LOAD, REMOTE_UPDATE
from ipu_emu.ops.random.counter_rng import RNG_KEY, STREAM_ID, stream_id_of
from ipu_emu.program.instructions import (
    AccumulateGradient,
    Compute,
    CountMicroBatch,
    IpuCopy,
    Leaf,
    RemoteLoad,
    RemoteStore,
)

_KEEP, _TAKE = "RunningMean___keep", "RunningMean___take"
#: The ops that add up gradients, and those that round stochastically as they do.
_ROUNDED = {"AddInto": "AddRounded", "MeanInto": "MeanRounded"}


class AccumulationWriter:
    """``tensor_places`` has the places of gradients; new tensors of ``graph`` get a stage in ``stages``."""

    def __init__(self, graph: Graph, tensor_places: Mapping[str, Place], stages: Stages, *, running: bool) -> None:
        self.graph, self.tensor_places, self.stages, self.running = graph, tensor_places, stages, running
        self.counters: dict[int, CountMicroBatch] = {}

    def among(self, leaves: Sequence[Leaf], gradients: Sequence[Gradient]) -> list[Leaf]:
        """Return ``leaves`` of a micro-batch with the instructions that sum each gradient as soon as it is made."""
        producers = {id: number for number, leaf in enumerate(leaves) for id in leaf.writes}
        after: dict[int, list[Leaf]] = {}
        for gradient in gradients:
            after.setdefault(producers.get(gradient.part, len(leaves) - 1), []).extend(self.accumulate(gradient))
        instructions: list[Leaf] = [*self.counters.values()]
        for number, leaf in enumerate(leaves):
            instructions += [leaf, *after.get(number, ())]
        return instructions

    def accumulate(self, gradient: Gradient) -> list[Leaf]:
        total, place = self.near(gradient), self.tensor_places[gradient.part]
        operands = (total, gradient.part)
        first = Op("CopyInto", operands, (total,), place=place)
        others = Op("AddInto", operands, (total,), place=place)
        if self.running:
            counter = self.counter(place.ipu)
            others = replace(others, type="MeanInto", inputs=(*operands, counter.keep, counter.take))
        key = self.key_on(place.ipu) if gradient.rounded else None
        if key is not None:
            attributes = {STREAM_ID: stream_id_of(replace(others, outputs=(gradient.total,)))}
            others = replace(others, type=_ROUNDED[others.type], inputs=(*others.inputs, key), attributes=attributes)
        return self.visiting(gradient.total, total, AccumulateGradient(first, others), place)

    def join(self, gradient: Gradient, others: Mapping[str, Gradient]) -> list[Leaf]:
        """Return the instructions that add the total of ``gradient`` to the one of ``others`` that it joins."""
        there, home = (self.tensor_places[term.part] for term in (gradient, others[gradient.joins]))
        leaves: list[Leaf] = []
        summand, total = self.near(gradient), self.near(others[gradient.joins])
        if summand != gradient.total:
            load = Op(REMOTE_LOAD, (gradient.total,), (summand,), phase=StepPhase.UPDATE, place=there)
            leaves.append(RemoteLoad(load))
        if there.ipu != home.ipu:
            copy = self.new(id_on_ipu(summand, home.ipu), self.graph.tensor(summand), gradient.part, off_chip=False)
            leaves.append(IpuCopy(Op(COPY, (summand,), (copy,), phase=StepPhase.UPDATE, place=home)))
            summand = copy
        add = Compute(Op("AddInto", (total, summand), (total,), phase=StepPhase.UPDATE, place=home))
        return [*leaves, *self.visiting(gradient.joins, total, add, home)]

    def near(self, gradient: Gradient) -> str:
        """Return the id of the tensor on the IPU in which micro-batches are summed."""
        total = self.graph.tensor(gradient.total)
        if not total.off_chip:
            return total.id
        return self.new(f"Loaded___{total.id}/sum", total, gradient.part, off_chip=False)

    def visiting(self, total: str, near: str, change: Leaf, place: Place) -> list[Leaf]:
        """Return ``change``, between a load and a store of ``total`` if that is in Streaming Memory."""
        if near == total:
            return [change]
        stored = self.new(f"Stored___{total}/sum", self.graph.tensor(total), near, off_chip=True)
        load = RemoteLoad(Op(REMOTE_LOAD, (total,), (near,), phase=change.ops[0].phase, place=place))
        store = Op(REMOTE_UPDATE, (total, near), (stored,), phase=change.ops[0].phase, place=place)
        return [load, change, RemoteStore(store)]

    def new(self, base: str, like: Tensor, neighbour: str, *, off_chip: bool) -> str:
        """Add a tensor to the stage of the tensor ``neighbour``; return its id."""
        id = self.graph.add(replace(like, id=self.graph.unused(base), off_chip=off_chip)).id
        self.stages.by_output[id] = self.stages.by_output[neighbour]
        return id

    def key_on(self, ipu: int) -> str | None:
        """Return the key of the random numbers on an IPU; None if nothing is random."""
        read = (id for op in self.graph.ops if op.place.ipu == ipu for id in op.inputs)
        return next((id for id in read if original_of(id) == RNG_KEY), None)

    def counter(self, ipu: int) -> CountMicroBatch:
        """Return the counter of micro-batches on an IPU, which has the weights of the running mean."""
        if ipu not in self.counters:
            keep, take = (id_on_ipu(id, ipu) if ipu else id for id in (_KEEP, _TAKE))
            for id in (keep, take):
                self.graph.tensors[id] = Tensor(id, FLOAT, (), Role.SCALAR)
                self.graph.data[id] = np.zeros((), np.float32)
            self.counters[ipu] = CountMicroBatch(keep, take)
        return self.counters[ipu]
