"""Model: the seconds of a step as a sum of named terms, for one configuration or for arrays of them.

    compute      GA slots; a slot is the time of the busiest IPU for a micro-batch
                 operations by class / (peak of the class x its share), forward + 2 backward (+ 1 recomputed)
                 and the start, sync and exchange of short ops (``starts``)
    ramps        the other slots of the pipeline, or what its schedule takes for uneven tasks
    ipu_links    collectives of gradients at the link rate x its share; copies of both passes between the IPUs of a
                 replica, and batch statistics between neighbours, at the link rate
    gw_links     2 (L - 1)/L of an IPU's share of the gradients, at the gateway rate x its share
    host         input and results that do not overlap with compute; and waits for further hosts
    streaming    states and other off-chip tensors, to the IPU and back at 16 GB/s
    update       the sum of gradients, and operations of the optimiser, or values through the memory of the tiles
    fixed        syncs, hops and work of tiles in collectives, at the same share, and in batch statistics; syncs of
                 copies between IPUs, of off-chip tensors, and of transfers with the host that do not overlap

Collectives of an older release have a factor of their own. Every term depends only on its own rates, so doubling a
rate halves the term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.optimisers.optimiser_table import OPTIMISERS
from ipu_emu.compiler.placement.graph_balance import TooFewOpsError, copy_seconds, host_seconds
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.hardware.rates import GATEWAY_LINK, TYPICAL, Rates
from ipu_emu.hardware.tile_cycles import START, VECTOR_BYTES, sync_cycles
from ipu_emu.predict import host, memory
from ipu_emu.predict.job import Job
from ipu_emu.predict.links import Links, LinkSeconds
from ipu_emu.predict.memory import Shape
from ipu_emu.predict.networks import NetworkBlock
from ipu_emu.predict.networks.start_costs import product_cycles, step_cycles
from ipu_emu.predict.placement import annotated, balanced, by_counts
from ipu_emu.predict.work_per_ipu import PlacedWork
from ipu_emu.program.schedules import SCHEDULES, in_flight
from ipu_emu.program.schedules.schedule_timing import ramp_slots

TERMS = ("compute", "ramps", "ipu_links", "gw_links", "host", "streaming", "update", "fixed")
#: The rates that --what-if can scale.
WHAT_IF = ("matrix", "vector", "ipu-links", "gw-links", "host", "streaming", "clock")
_BACKWARD, _PASSES = 2, 2
#: Ops that a normalisation has more if replicas share its statistics: one before the collective of each pass.
_SHARED_STEPS = 2
#: Ops of LARS for each weight that exchange data: two norms, each with a sum.
_NORMS = 4
#: Shares of the memory of an IPU that placed blocks may take: the first with the best of the verdicts is used.
_SHARES = (inf, *(percent / 100 for percent in range(100, 15, -5)))


@dataclass(frozen=True)
class _Slots:
    """A slot: ``compute`` seconds, and nominal seconds of ``copies`` for one sample, ``copied`` in number.

    ``host_share``: its fraction of the host's bytes, in ``transfers`` transfers. ``ramps``: seconds of the slots in
    addition to one for each micro-batch, ``extra`` of which have copies that are not part of them.
    """

    compute: Any
    copies: Any
    copied: Any
    host_share: Any
    transfers: Any
    ramps: Any
    extra: Any


@dataclass(frozen=True)
class StepModel:
    """Computes the terms of a step of ``job`` with placed blocks; the numbers of a ``Shape`` replace the job's."""

    job: Job
    work: PlacedWork

    @property
    def system(self) -> System:
        return self.job.system

    # ---------------------------------------------------------------- compute

    def sample_seconds(self, rates: Rates, ipu: int, *, recompute: bool) -> NDArray[np.float64]:
        """[class] seconds of a sample on ``ipu``, forward and backward."""
        generation, job = self.system.generation, self.job
        clock = rates.factor("clock")
        peak = generation.peak(job.itemsize) * clock * rates.factor("matrix")
        vector = generation.tiles * generation.clock * clock * VECTOR_BYTES / job.itemsize * rates.factor("vector")
        moved = generation.exchange * clock / job.itemsize
        convolution, product = peak * rates.convolution, peak * rates.product
        speed = np.array([convolution, product, product, vector, moved, 1.0])
        done = self.work.forward[ipu] + self.work.frozen[ipu]
        if job.training:
            done = done + self.work.forward[ipu] * (_BACKWARD + recompute) - self.work.needless[ipu]
        seconds: NDArray[np.float64] = done / speed
        return seconds

    def class_seconds(self, rates: Rates, ipu: int, batches: Any, *, recompute: bool) -> NDArray[np.float64]:
        """[class, number of samples] seconds of a micro-batch on ``ipu``."""
        seconds: NDArray[np.float64] = self.sample_seconds(rates, ipu, recompute=recompute)[:, None] * batches
        seconds[-1] += self._starts(rates, ipu, batches, recompute=recompute)
        return seconds

    def _starts(self, rates: Rates, ipu: int, batches: Any, *, recompute: bool) -> Any:
        """Extra seconds of the ops of a micro-batch that are short."""
        job, generation = self.job, self.system.generation
        trained, frozen = self.work.products[ipu]
        forward = 1 + (recompute and job.training)
        shares = (rates.convolution, rates.product)
        cycles = sum(
            product_cycles(products, batches, generation, job.itemsize, shares=shares, passes=passes)
            for products, passes in ((trained, (forward, 1.0 * job.training)), (frozen, (1.0, 0.0)))
        )
        steps = self.work.steps[ipu] @ np.array([forward, job.training, 1.0])
        steps += _SHARED_STEPS * len(self.work.norms[ipu]) * (job.training and job.bn_span > 1)
        return (cycles + steps * step_cycles(generation)) / (generation.clock * rates.factor("clock"))

    def slot_seconds(self, rates: Rates, ipu: int, shape: Shape) -> Any:
        """Seconds of a micro-batch on ``ipu``."""
        if not np.ndim(shape.batch) and not np.ndim(shape.recompute):
            batches = np.reshape(shape.batch, 1)
            return self.class_seconds(rates, ipu, batches, recompute=bool(shape.recompute)).sum(axis=0)[0]
        known, where = np.unique(shape.batch, return_inverse=True)
        where = where.reshape(np.shape(shape.batch))
        slots = np.zeros(np.broadcast_shapes(where.shape, np.shape(shape.recompute)))
        for recompute in np.unique(shape.recompute):
            seconds = self.class_seconds(rates, ipu, known, recompute=bool(recompute)).sum(axis=0)[where]
            slots = np.where(shape.recompute == recompute, seconds, slots)
        return slots

    def busiest(self, rates: Rates, shape: Shape) -> int:
        """The IPU of the longest slot, of a single configuration."""
        return int(np.argmax([float(self.slot_seconds(rates, ipu, shape)) for ipu in range(self.work.ipus)]))

    def _slots(self, rates: Rates, shape: Shape) -> _Slots:
        """The slot of the busiest IPU; without a pipeline, the sum of all IPUs."""
        slots = [self.slot_seconds(rates, ipu, shape) for ipu in range(self.work.ipus)]
        if self.work.ipus == 1 or self.job.takes_turns:
            (copies, copied), (host_share, transfers) = self._copies.sum(axis=(0, 1)), self._host_parts.sum(axis=0)
            return _Slots(sum(slots), copies, copied, host_share, transfers, 0.0 * slots[0], 0.0 * slots[0])
        ways = self._waits(shape)
        waits_of_ipus = [forward + other for forward, other in ways]
        busiest = np.argmax([sum(both) for both in zip(slots, waits_of_ipus, strict=True)], axis=0)
        slot, waits = (_of_ipu(values, busiest) for values in (slots, waits_of_ipus))
        copies, copied = self._copies.sum(axis=0)[busiest].T
        host_share, transfers = self._host_parts[busiest].T
        seconds = SCHEDULES[self.job.schedule].seconds
        if seconds and self.job.training:
            forward = replace(self, job=replace(self.job, training=False))
            tasks = []
            for ipu, (before, behind) in enumerate(ways):
                forward_slot = forward.slot_seconds(rates, ipu, shape)
                tasks.append((forward_slot + before, slots[ipu] - forward_slot + behind))
            ramps = seconds(tasks, shape.accumulation) - shape.accumulation * (slot + waits)
            return _Slots(slot, copies, copied, host_share, transfers, ramps, 0.0 * slot)
        extra = 0.0 * slot + self._ramp_slots(shape.accumulation)
        return _Slots(slot, copies, copied, host_share, transfers, extra * slot, extra)

    def _ramp_slots(self, accumulation: Any) -> Any:
        """Slots in addition to one for each micro-batch."""
        if not self.job.training:
            return self.work.ipus - 1
        counts, where = np.unique(accumulation, return_inverse=True)
        slots = [ramp_slots(self.job.schedule, self.work.ipus, int(count)) for count in counts]
        return np.reshape(np.take(slots, where), np.shape(accumulation))

    def _waits(self, shape: Shape) -> list[tuple[Any, Any]]:
        """Seconds of copies and of transfers that do not overlap, of each IPU: with the forward, and the backward."""
        sync = sync_cycles(self.system.generation) / self.system.generation.clock
        waits = [
            [shape.batch * copies + sync * number for copies, number in passes]
            for passes in zip(*self._copies, strict=True)
        ]
        if not self.job.overlap_io:
            network = host.limits(self.job, 1, shape.batch)["network"]
            for seconds, (share, number) in zip(waits, self._host_parts, strict=True):
                seconds[0] = seconds[0] + network * share + sync * number
        return [(forward, backward) for forward, backward in waits]

    @cached_property
    def _copies(self) -> NDArray[np.float64]:
        """[pass, IPU, 2]: nominal seconds of copies to the IPU for one sample, and their number.

        Activations come from the previous stage and, in the backward pass of training, gradients from the next one.
        """
        links, copies = Links(self.system, self.work.ipus), np.zeros((_PASSES, self.work.ipus, 2))
        for source, target, values in self.work.passed:
            ends = ((source, target), (target, source)) if self.job.training else ((source, target),)
            for way, (start, other) in enumerate(ends):
                if start != other and values:
                    copies[way, other] += links.copy(start, other, values * self.job.itemsize), 1
        return copies

    @cached_property
    def _host_parts(self) -> NDArray[np.float64]:
        """[IPU, 2]: its fraction of the bytes between host and replica, and the number of its transfers."""
        parts, last = np.zeros((self.work.ipus, 2)), self.work.last_home
        first, others = host.transfers(self.job)
        inputs, results = host.bytes_per_sample(self.job), host.result_bytes(self.job)
        parts[0] += inputs / ((inputs + results) or 1.0), first
        parts[last] += results / ((inputs + results) or 1.0), others
        return parts

    # ---------------------------------------------------------------- the step

    def terms(self, rates: Rates, shape: Shape) -> dict[str, Any]:
        """Seconds by the names of ``TERMS``."""
        slots = self._slots(rates, shape)
        links = self._link_seconds(shape, slots)
        compute, ramps = shape.accumulation * slots.compute, slots.ramps
        collectives = rates.links * rates.collectives
        streamed, transfers = memory.streamed(self.job, self.work, shape)
        syncs = transfers * sync_cycles(self.system.generation) / self.system.generation.clock
        faster = rates.factor("ipu-links")
        return {
            "compute": compute,
            "ramps": ramps,
            "ipu_links": (links["collectives"] / collectives + links["copies"]) / faster,
            "gw_links": links["gateway"] / (rates.gateway * rates.collectives * rates.factor("gw-links")),
            "host": self._host(rates, shape, compute + ramps, slots),
            "streaming": streamed / (GATEWAY_LINK * rates.factor("streaming")),
            "update": self._update(shape) / rates.factor("clock"),
            "fixed": (links["latency"] / collectives + links["waits"] + syncs) / rates.factor("clock"),
        }

    def _link_seconds(self, shape: Shape, work: _Slots) -> dict[str, Any]:
        """Nominal seconds of collectives, of copies between IPUs in all slots, of GW-Links, and latencies."""
        job, links = self.job, Links(self.system, self.work.ipus)
        slots = shape.accumulation + np.minimum(work.extra, self.work.ipus - 1)  # idle slots have no copies
        syncs = slots * work.copied + (0.0 if job.overlap_io else shape.accumulation * work.transfers)
        seconds = {"copies": slots * shape.batch * work.copies, "collectives": 0.0, "gateway": 0.0, "latency": 0.0}
        seconds["waits"] = syncs * sync_cycles(self.system.generation) / self.system.generation.clock
        if not job.training:
            return seconds
        gradients = self._gradients(links, shape)
        statistics, weights = self._batch_statistics, self._weights(links, shape)
        return {
            "copies": seconds["copies"],
            "collectives": gradients[0] + slots * weights[0] + shape.accumulation * statistics.transfer,
            "gateway": gradients[1],
            "latency": gradients[2] + slots * weights[1],
            "waits": seconds["waits"] + shape.accumulation * statistics.latency,
        }

    @property
    def reductions(self) -> list[tuple[int, int]]:
        """(IPU of a replica, values) of each reduction of gradients: one for each IPU, or each tensor of it."""
        tensors = [[sum(sizes)] if self.job.merge_collectives else sizes for sizes in self.work.tensors]
        return [(ipu, size) for ipu, sizes in enumerate(tensors) for size in sizes]

    def _gradients(self, links: Links, shape: Shape) -> NDArray[np.float64]:
        """[transfer, gateway, latency] of reducing the gradients, on one IPU of a replica after the other."""
        if not np.ndim(shape.replicas):
            replicas, sharded = int(shape.replicas), bool(shape.shared)
            price = links.gradients(replicas, self.reductions, self.job.itemsize, sharded=sharded)
            return np.array((price.transfer, price.gateway, price.latency))
        pairs = np.stack(np.broadcast_arrays(shape.replicas, shape.shared), axis=-1)
        known, where = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
        prices = [links.gradients(int(r), self.reductions, self.job.itemsize, sharded=bool(s)) for r, s in known]
        table = np.array([(price.transfer, price.gateway, price.latency) for price in prices])
        return np.moveaxis(table[where.reshape(pairs.shape[:-1])], -1, 0)

    def _weights(self, links: Links, shape: Shape) -> NDArray[np.float64]:
        """[transfer, latency] of gathering sharded weights for both passes of a slot."""
        if "weights" not in self.job.shared:
            return np.zeros(2)
        sizes = [(ipu, size) for ipu in self._in_turn(self.work.parameters) for size in self.work.tensors[ipu]]
        known, where = np.unique(shape.replicas, return_inverse=True)
        prices = [links.weights(int(replicas), sizes, self.job.itemsize) * _PASSES for replicas in known]
        table = np.array([(price.transfer, price.latency) for price in prices])
        return np.moveaxis(table[where.reshape(np.shape(shape.replicas))], -1, 0)

    @cached_property
    def _batch_statistics(self) -> LinkSeconds:
        """Collectives of one micro-batch, both passes: of all batch normalisations of the IPU with the most."""
        if self.job.bn_span == 1:
            return LinkSeconds()
        links = Links(self.system, self.work.ipus)
        norms = [size for ipu in self._in_turn(list(map(len, self.work.norms))) for size in self.work.norms[ipu]]
        return sum((links.statistics(self.job.bn_span, channels) for channels in norms), LinkSeconds()) * 2

    def _in_turn(self, most: Any) -> list[int]:
        """The IPUs whose collectives of a micro-batch add up: in a pipeline those of the one that has ``most``."""
        ipus = range(self.work.ipus)
        return list(ipus) if self.job.takes_turns else [max(ipus, key=lambda ipu: most[ipu])]

    def _host(self, rates: Rates, shape: Shape, compute: Any, slots: _Slots) -> Any:
        slowest = np.maximum.reduce(list(host.limits(self.job, shape.replicas, shape.batch).values()))
        wanted = shape.accumulation * slowest / rates.factor("host")
        if not self.job.overlap_io:
            wanted = wanted * slots.host_share
        hosts = np.minimum(self.job.host_count, shape.replicas) if self.job.training else 1
        waits = rates.waits(hosts) / rates.factor("host")
        return waits + (np.maximum(0.0, wanted - compute) if self.job.overlap_io else wanted)

    def _update(self, shape: Shape) -> Any:
        """Seconds to accumulate gradients, and to update weights and states.

        The longer of the operations, and of reading weights, gradients and states and writing weights and states.
        """
        if not self.job.training:
            return 0.0 * shape.batch
        job, generation, tensors = self.job, self.system.generation, max(map(len, self.work.tensors))
        trained, divided = float(self.work.trained.max()), memory.shards(job, shape.replicas, shape.shared)
        moved, states = 3 * job.itemsize, memory.state_bytes(job)
        optimiser = OPTIMISERS[job.optimiser]
        operations = optimiser.operations * optimiser.state_itemsize(job.itemsize) / VECTOR_BYTES
        work = max((moved + 2 * states) / generation.load_bytes, operations) * trained / divided
        summed = max(moved / generation.load_bytes, job.itemsize / VECTOR_BYTES) * trained
        cycles = work / generation.tiles + tensors * START
        if job.optimiser == "lars":
            cycles = cycles + _NORMS * self.work.weights * step_cycles(generation)
        again = np.where(shape.accumulation > 1, shape.accumulation, 0)
        return (cycles + again * (summed / generation.tiles + tensors * START)) / generation.clock

    # ---------------------------------------------------------------- derived numbers

    def flops(self, *, hardware: bool) -> float:
        """Operations on the matrix units for one sequence; with ``hardware``, including recomputed ones."""
        network = self.job.network
        if not self.job.training:
            return network.flops
        again = sum(block.matrix for blocks in self.work.placement for block in blocks if not block.frozen)
        return network.model_flops + (again if hardware and self.job.recompute else 0.0)

    def memory_of(self, ipu: int, shape: Shape) -> tuple[dict[str, Any], Any, Any]:
        """Bytes on ``ipu`` by part, and the bounds with code."""
        parts = memory.parts(self.job, self.work, ipu, shape)
        low, high = memory.bounds(self.job, self.work, ipu, parts, shape)
        return parts, low, high

    def memories(self) -> list[memory.PredictedMemory]:
        """The memory of every IPU of a replica."""
        limit, shape = float(self.system.generation.sram), Shape.of(self.job)
        memories = []
        for ipu in range(self.work.ipus):
            parts, low, high = self.memory_of(ipu, shape)
            nbytes = {name: float(value) for name, value in parts.items()}
            memories.append(memory.PredictedMemory(ipu, nbytes, float(low), float(high), limit))
        return memories


def _of_ipu(values: Sequence[Any], ipu: Any) -> Any:
    """The element of ``values`` for the ``ipu`` of each configuration."""
    return np.take_along_axis(np.stack(values), ipu[None], 0)[0] if np.ndim(ipu) else values[int(ipu)]


def placed(job: Job) -> StepModel:
    """The model of ``job`` with placed blocks: as given, else balanced by time, and if necessary by memory.

    The blocks of a network may have IPUs of their own, which given layers override. Raises EmulatorError for a
    schedule that the pipeline cannot have.
    """
    model = _placed(job)
    _check_schedule(job, model.work)
    return model


def _check_schedule(job: Job, work: PlacedWork) -> None:
    """Raise EmulatorError, in the words of the compiler, for stages that may not share an IPU."""
    if job.training and work.stages > work.ipus:
        in_flight(job.schedule, work.stages, training=True, mapping=[*range(work.ipus), work.last_home])


def _placed(job: Job) -> StepModel:
    network, ipus = job.network, job.ipus
    if job.layers:
        return StepModel(job, PlacedWork(by_counts(network, job.layers, job.embedding_ipu)))
    if ipus == 1:
        return StepModel(job, PlacedWork((network.blocks,)))
    if network.homes:
        return StepModel(job, PlacedWork(annotated(network, ipus)))
    if network.divided is not None and not job.embedding_ipu:
        with suppress(TooFewOpsError):  # some IPUs have no block
            return StepModel(job, PlacedWork(annotated(network.divided(ipus, job.work), ipus)))
    loads, copies = _loads(job)
    models: dict[int, StepModel] = {}
    for share in _SHARES:
        limit = share * job.system.generation.sram
        model = StepModel(job, PlacedWork(balanced(network, ipus, loads, copies, job.embedding_ipu, limit)))
        worst = max(memory.VERDICTS.index(need.verdict) for need in model.memories())
        models.setdefault(worst, model)
        if not worst:
            break
    return models[min(models)]


def _loads(job: Job) -> tuple[dict[str, tuple[float, float]], Callable[[NetworkBlock], float]]:
    """Seconds and bytes of each block, without code and further micro-batches; and seconds to copy its output."""
    network = job.network
    if not network.blocks:
        raise EmulatorError(f"{job.model} has no layers to divide; use one IPU per replica")
    weight_bytes = 2 * job.itemsize + (0 if {"states"} & {*job.off_chip, *job.shared} else memory.state_bytes(job))
    keeps = job.training and not job.recompute

    def nbytes(block: NetworkBlock) -> float:
        values = block.output + block.stashed * keeps
        return block.parameters * weight_bytes + job.batch * values * job.itemsize + memory.table_bytes(job, block)

    def copies(block: NetworkBlock) -> float:
        return copy_seconds(job.batch * (block.output + block.inside) * job.itemsize)

    seconds = {block.name: _seconds(job, block) for block in network.blocks}
    last = next((block for block in network.blocks if block.tied), network.blocks[-1])
    sizes, counts = (host.bytes_per_sample(job), host.result_bytes(job)), host.transfers(job)
    for block, size, count in zip((network.blocks[0], last), sizes, counts, strict=True):
        seconds[block.name] += host_seconds(job.batch * size, job.ipus, count)
    return {block.name: (seconds[block.name], nbytes(block)) for block in network.blocks}, copies


def _seconds(job: Job, block: NetworkBlock) -> float:
    """Seconds of a micro-batch of ``block``."""
    return float(StepModel(job, PlacedWork(((block,),))).slot_seconds(TYPICAL, 0, Shape.of(job)))
