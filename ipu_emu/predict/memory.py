"""Memory: bytes on each IPU by part, with a verdict: fits, unsure, does not fit.

    weights, gradients, states     of the blocks on the IPU; sharded states are divided by the replicas of a domain
    stash                          values kept for the backward pass, once for each micro-batch in flight, and two
                                   buffers for each of the values and gradients that pass from IPU to IPU
    transient                      of the largest block; with recomputation also the stash of its layer
    code                           a lower and an upper bound, as it is unknown before compiling

A stage keeps the values of as many micro-batches as its schedule has in flight, at most as many as are accumulated. A
tied head is a stage of its own, after that of the last IPU.

The lower bound, all parts with the least code, is that of a program tuned for IPUs. The upper bound adds what a
program needs that leaves all to the compiler, as those of ipu-emu memory do:

    logits                         of all positions at once, and the gradient of their table besides its sum; in
                                   inference a buffer from which the host gets them
    tied table                     a sum of the gradients of its products, apart from those of its look-ups
    values between IPUs            kept on both, without recomputation
    sharded states and weights     the update of the largest block, gathered from the replicas in the type of states
    sharded weights                the weights of the IPU, gathered from the replicas in each pass
Host-side scratch of the emulator is not memory of an IPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.compiler.optimisers.optimiser_table import OPTIMISERS
from ipu_emu.predict.host import bytes_per_sample
from ipu_emu.predict.job import DTYPES, Job
from ipu_emu.predict.layer_parameters import Parameters
from ipu_emu.predict.links import domains_of
from ipu_emu.predict.networks import NetworkBlock
from ipu_emu.predict.variable_memory import Variables
from ipu_emu.predict.work_per_ipu import PlacedWork
from ipu_emu.program.schedules import depth

#: From the best to the worst.
VERDICTS = ("fits", "unsure", "does not fit")
PARTS = ("weights", "gradients", "states", "stash", "transient", "inputs")
#: Code, vertex state and exchange, as fractions of the memory of an IPU: least; most for one block, and in total.
_LEAST_CODE, _BASE_CODE, _BLOCK_CODE, _MOST_CODE = 0.025, 0.05, 0.0125, 0.20
_INPUT_BUFFERS = _PIPELINE_BUFFERS = 2


@dataclass(frozen=True)
class PredictedMemory:
    """Bytes of data by part on IPU ``ipu``, and the lower and upper bound of all bytes with code."""

    ipu: int
    parts: dict[str, float]
    low: float
    high: float
    limit: float

    @property
    def nbytes(self) -> float:
        return sum(self.parts.values())

    @property
    def verdict(self) -> str:
        return str(verdict(self.low, self.high, self.limit))


@dataclass(frozen=True)
class Shape:
    """One configuration, or many that differ only in numbers: all fields may be arrays of one length.

    ``shared`` and ``off_chip`` are those of the optimiser states.
    """

    replicas: Any
    batch: Any
    accumulation: Any
    recompute: Any
    shared: Any
    off_chip: Any

    @classmethod
    def of(cls, job: Job) -> Shape:
        """Return the configuration of ``job``."""
        states = ("states" in job.shared, "states" in job.off_chip)
        return cls(*map(np.array, (job.replicas, job.batch, job.accumulation, job.recompute, *states)))


def variables(job: Job) -> Variables:
    """The variables of a replica."""
    network = job.network
    return Variables(Parameters(network.trained, 0, network.statistics), round(network.activations))


def formula_bytes(job: Job) -> tuple[int, int]:
    """Bytes of all variables of a replica: by the literal formula, and with each variable counted once."""
    if not job.training:
        return (variables(job).inference(job.itemsize),) * 2
    states = OPTIMISERS[job.optimiser].state_itemsize(job.itemsize)
    literal, once = (
        variables(job).training(
            job.itemsize, batch=job.batch, optimiser=job.optimiser, literal=literal, state_itemsize=states
        )
        for literal in (True, False)
    )
    return literal, once


def verdict(low: Any, high: Any, limit: float) -> Any:
    """Return fits, unsure or does not fit for these bounds; for arrays, an array."""
    fits, unsure, too_large = VERDICTS
    return np.where(high <= limit, fits, np.where(low <= limit, unsure, too_large))


def in_flight(schedule: str, stages: int, stage: int, accumulation: Any) -> Any:
    """Number of micro-batches whose activations ``stage`` keeps."""
    return np.minimum(depth(schedule, stages, stage, training=True), accumulation)


def state_bytes(job: Job) -> float:
    """Bytes of optimiser states of a trained value."""
    optimiser = OPTIMISERS[job.optimiser]
    return optimiser.states * optimiser.state_itemsize(job.itemsize)


def shards(job: Job, replicas: Any, shared: Any) -> Any:
    """Number of shards of states: the replicas of one IPU-Link domain."""
    domains = domains_of(replicas, job.ipus, job.system)
    return np.where(shared, np.maximum(1, replicas // domains), 1)


def streamed(job: Job, work: PlacedWork, shape: Shape) -> tuple[Any, Any]:
    """Bytes to and from Streaming Memory in a step, and transfers.

    They are those of the IPU with the most, or of all IPUs if these take turns.

    states          loaded and stored by the update
    weights         loaded for each pass of each micro-batch, also for one that recomputes, a tied table by both
                    stages; loaded and stored by the update; moving averages loaded and stored for each micro-batch
    accumulators    loaded and stored for each micro-batch, loaded by the update; two sums for a tied table, which the
                    update adds
    activations     stored and loaded for each micro-batch (their transfers are not counted)
    """
    most = np.sum if job.takes_turns else np.max
    trained, count = float(most(work.trained)), float(most(work.variables))
    frozen = float(most(work.parameters - work.trained))
    tied = float(most(work.tied))
    again = tied * (not job.takes_turns and work.stages > work.ipus)
    averages = float(most([2 * len(norms) for norms in work.norms]))
    if not job.training:
        times = shape.accumulation * ("weights" in job.off_chip)
        return times * (trained + again + frozen) * job.itemsize, times * (count + averages)
    states = np.where(shape.off_chip, 2, 0)
    moved = states * trained * state_bytes(job) / shards(job, shape.replicas, shape.shared)
    transfers = states * count * OPTIMISERS[job.optimiser].states
    if "accumulators" in job.off_chip:
        times = np.where(shape.accumulation > 1, 2 * shape.accumulation + 1, 0)
        moved = moved + (times * (trained + tied) + 2 * tied * (times > 0)) * job.itemsize
        transfers = transfers + times * count
    if "weights" in job.off_chip:
        times = (2 + shape.recompute) * shape.accumulation + 2
        moved = moved + (times * trained + shape.accumulation * (again + frozen)) * job.itemsize
        transfers = transfers + times * count + 2 * shape.accumulation * averages
    if "activations" in job.off_chip:
        stashed = np.where(shape.recompute, float(most(work.checkpoints)), float(most(work.stashed)))
        moved = moved + 2 * shape.accumulation * shape.batch * stashed * job.itemsize
    return moved, transfers


def parts(job: Job, work: PlacedWork, ipu: int, shape: Shape) -> dict[str, Any]:
    """Bytes by part on ``ipu``."""
    size = job.itemsize
    trained = float(work.trained[ipu])
    weights = float(work.parameters[ipu]) * size + float(work.statistics[ipu]) * size
    divided = shards(job, shape.replicas, shape.shared)
    if job.training and "weights" in job.shared:
        weights = weights / shards(job, shape.replicas, True)
    if "weights" in job.off_chip:
        weights = 0.0 * weights
    inputs = shape.batch * (_INPUT_BUFFERS * bytes_per_sample(job) * (ipu == 0))
    if not job.training:
        live = shape.batch * float(work.transient[ipu] + work.boundary[ipu]) * size
        return _all(inputs, weights, 0.0, 0.0, 0.0, live)
    states = np.where(shape.off_chip, 0.0, trained * state_bytes(job) / divided)
    held = np.where(shape.accumulation > 1, 0.0, 1.0) if "accumulators" in job.off_chip else 1.0
    stash, transient = _activations(job, work, ipu, shape)
    return _all(inputs, weights, held * trained * size, states, stash, transient)


def _activations(job: Job, work: PlacedWork, ipu: int, shape: Shape) -> tuple[Any, Any]:
    """Bytes that are kept for the backward pass, and transient ones."""
    size, held = job.itemsize, DTYPES[job.stash_dtype]
    if job.ipus == 1 or job.takes_turns:
        (stashed, live), (stashed_again, live_again) = work.peak[ipu], work.peak_recomputed[ipu]
        stash = shape.batch * held * np.where(shape.recompute, stashed_again, stashed)
        return stash, shape.batch * size * np.where(shape.recompute, live_again, live)
    depth = in_flight(job.schedule, work.stages, ipu, shape.accumulation)
    stashed = np.where(shape.recompute, work.checkpoints[ipu], work.stashed[ipu])
    passed = _PIPELINE_BUFFERS * (work.sent[ipu] + work.received[ipu])
    stash = shape.batch * (depth * stashed * held + passed * size)
    if "activations" in job.off_chip:
        stash = stash / np.maximum(depth, 1)
    return stash, shape.batch * size * np.where(shape.recompute, work.recomputed[ipu], work.transient[ipu])


def table_bytes(job: Job, block: NetworkBlock) -> float:
    """Bytes that a compiler adds for the table of ``block``: its gradients, and its update gathered from replicas."""
    if not job.training or not block.table:
        return 0.0
    gathered = DTYPES["float"] * OPTIMISERS[job.optimiser].is_wide * ("states" in job.shared)
    return block.table * float(job.itemsize * (1 + block.tied) + gathered)


def bounds(job: Job, work: PlacedWork, ipu: int, parts: dict[str, Any], shape: Shape) -> tuple[Any, Any]:
    """Lower and upper bound of the bytes on ``ipu``; ``parts``: its ``parts`` for the same shape."""
    limit, data = float(job.system.generation.sram), sum(parts.values())
    code = min(_MOST_CODE, _BASE_CODE + _BLOCK_CODE * len(work.placement[ipu]))
    most = data + code * limit
    gradient = float(work.tables[ipu]) * job.training
    live, gathered, passing = (shape.batch * float(work.unsliced[ipu]) + gradient) * job.itemsize, 0.0, 0.0
    if job.training:
        visiting = "accumulators" in job.off_chip  # one sum at a time is on the IPU
        held = float(work.largest[ipu]) if visiting else float(work.tied[ipu])
        workspace, gathered, passing = _from_replicas(job, work, ipu, shape)
        most = most + (shape.accumulation > 1) * held * job.itemsize + workspace
        most = most + _kept_twice(job, work, ipu, shape)
    else:
        # half of these values are the logits
        most = most + shape.batch * float(work.unsliced[ipu]) / 2 * job.itemsize
    region = parts["stash"] + parts["transient"]
    passes = parts["stash"] + np.maximum(parts["transient"], live) + passing
    return data + _LEAST_CODE * limit, most + np.maximum(passes, gathered) - region  # the update reuses this region


def _kept_twice(job: Job, work: PlacedWork, ipu: int, shape: Shape) -> Any:
    """Bytes of values that two IPUs keep: the previous one as a result, this one as an operand."""
    if job.ipus == 1 or job.takes_turns or "activations" in job.off_chip:
        return 0.0
    depth = in_flight(job.schedule, work.stages, ipu, shape.accumulation)
    return np.where(shape.recompute, 0.0, depth * shape.batch * work.received[ipu] * DTYPES[job.stash_dtype])


def _from_replicas(job: Job, work: PlacedWork, ipu: int, shape: Shape) -> tuple[Any, Any, Any]:
    """Bytes gathered from replicas that share states or weights: in a collective, in an update, and in a pass."""
    weights = "weights" in job.shared
    divided = shards(job, shape.replicas, np.logical_or(shape.shared, weights))
    together = (divided > 1) * (weights or OPTIMISERS[job.optimiser].states > 0)
    largest = together * float(work.largest[ipu])
    values = largest * OPTIMISERS[job.optimiser].state_itemsize(job.itemsize)
    passing = together * weights * float(work.parameters[ipu]) * job.itemsize
    return values * (1 + 1 / divided), values * (1 + 1 / divided) + largest * weights * job.itemsize, passing


def _all(inputs: Any, *others: Any) -> dict[str, Any]:
    """Bytes by part, for the ``inputs`` and the ``others`` in the order of ``PARTS``, all of the shape of inputs."""
    return dict(zip(PARTS, (*(nbytes + 0.0 * inputs for nbytes in others), inputs), strict=True))
