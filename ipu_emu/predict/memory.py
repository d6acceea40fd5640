"""Memory: bytes on each IPU by part, with a verdict: fits, unsure, does not fit.

    weights, gradients, states     of the blocks on the IPU; sharded states are divided by the replicas of a domain
    stash                          values kept for the backward pass, once for each micro-batch in flight
    transient                      of the largest block; with recomputation also what it keeps
    code                           between a least and a most: it cannot be known before compiling

Stage i of N has 2 (N - i) - 1 micro-batches in flight (grouped, popart), or N - i (interleaved), at most as many as
are accumulated.
Host-side scratch of the emulator is not memory of an IPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ipu_emu.predict.host import bytes_per_sample
from ipu_emu.predict.job import DTYPES, Job
from ipu_emu.predict.links import domains_of
from ipu_emu.predict.variable_memory import OPTIMISER_STATES
from ipu_emu.predict.work import PlacedWork

__all__ = ["CODE", "PARTS", "IpuMemory", "parts", "verdict"]

PARTS = ("weights", "gradients", "states", "stash", "transient", "inputs")
#: Least and most code, vertex state and exchange, as shares of the memory of an IPU.
CODE = (0.04, 0.20)
_INPUT_BUFFERS = 2
#: Bytes of a state value where they are not those of the weights.
_STATE_BYTES = {"adam": 4, "lamb": 4}


@dataclass(frozen=True)
class IpuMemory:
    """Bytes of data by part on IPU ``ipu``, and least and most with code."""

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


def verdict(low: Any, high: Any, limit: float) -> Any:
    """fits, unsure or does not fit; of arrays an array."""
    return np.where(high <= limit, "fits", np.where(low <= limit, "unsure", "does not fit"))


def in_flight(schedule: str, ipus: int, ipu: int, accumulation: Any) -> Any:
    """Micro-batches whose activations are kept on ``ipu``."""
    most = {"interleaved": ipus - ipu, "sequential": 1}.get(schedule, 2 * (ipus - ipu) - 1)
    return np.minimum(most, accumulation)


def state_bytes(job: Job) -> float:
    """Bytes of optimiser states of a trained value."""
    return OPTIMISER_STATES[job.optimiser] * _STATE_BYTES.get(job.optimiser, job.itemsize)


def shards(job: Job, replicas: Any, shared: Any) -> Any:
    """Into how many shards states are divided: the replicas of one IPU-Link domain."""
    domains = domains_of(replicas, job.ipus, job.system)
    return np.where(shared, np.maximum(1, replicas // domains), 1)


def parts(
    job: Job,
    work: PlacedWork,
    ipu: int,
    *,
    replicas: Any,
    batch: Any,
    accumulation: Any,
    recompute: Any,
    shared: Any,
    off_chip: Any,
) -> dict[str, Any]:
    """Bytes by part on ``ipu``; the keywords may be arrays. ``shared`` and ``off_chip`` are of the states."""
    size = job.itemsize
    trained = float(work.trained[ipu])
    weights = float(work.parameters[ipu]) * size + float(work.statistics[ipu]) * size
    divided = shards(job, replicas, shared)
    if "weights" in job.shared:
        weights = weights / shards(job, replicas, True)
    if "weights" in job.off_chip:
        weights = 0.0 * weights
    inputs = batch * (_INPUT_BUFFERS * bytes_per_sample(job) * (ipu == 0))
    if not job.training:
        live = batch * float(work.transient[ipu] + work.boundary[ipu]) * size
        return _all(weights, 0.0, 0.0, 0.0, live, inputs)
    states = np.where(off_chip, 0.0, trained * state_bytes(job) / divided)
    held = 0.0 if "accumulators" in job.off_chip else 1.0
    depth = in_flight(job.schedule, job.ipus, ipu, accumulation)
    kept = np.where(recompute, float(work.outputs[ipu]), float(work.kept[ipu]))
    stash = depth * batch * kept * DTYPES[job.stash_dtype]
    if "activations" in job.off_chip:
        stash = stash / np.maximum(depth, 1)
    transient = batch * size * np.where(recompute, float(work.recomputed[ipu]), float(work.transient[ipu]))
    return _all(weights, held * trained * size, states, stash, transient, inputs)


def _all(weights: Any, gradients: Any, states: Any, stash: Any, transient: Any, inputs: Any) -> dict[str, Any]:
    nothing = 0.0 * inputs
    return {
        "weights": weights + nothing,
        "gradients": gradients + nothing,
        "states": states + nothing,
        "stash": stash + nothing,
        "transient": transient + nothing,
        "inputs": inputs,
    }
