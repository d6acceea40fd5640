"""Sample order: which samples of a source make up each step on each instance; a function of (seed, epoch, step).

The samples of an epoch, shuffled or not, are assigned in data order: batch, accumulation, *global* replica, sample of
the micro-batch. An instance takes the samples of its own replicas, so what a replica sees does not depend on how
replicas are spread over instances.

    2 replicas, micro-batch 2          step 0                 step 1
    samples of the epoch        s0 s1 | s2 s3        s4 s5 | s6 s7        (s8: incomplete step; left out)
    replica                     0       1            0       1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import popdist_py

_U64 = np.uint64


@dataclass(frozen=True)
class ReplicaRange:
    """The replicas of an instance: ``local`` of ``total``, starting at global index ``offset``."""

    local: int = 1
    offset: int = 0
    total: int = 1

    @classmethod
    def of_instance(cls) -> ReplicaRange:
        """Return the replicas that poprun-py gave this process; without poprun-py, one of one."""
        return cls(
            popdist_py.getNumLocalReplicas(), popdist_py.getReplicaIndexOffset(), popdist_py.getNumTotalReplicas()
        )


@dataclass(frozen=True)
class BatchShape:
    """Batches per step, micro-batches per batch, and samples per micro-batch (None: a sample is a micro-batch)."""

    batches: int = 1
    accumulation: int = 1
    micro_batch: int | None = None

    def samples(self, replicas: int) -> int:
        """Return the number of samples in a step of ``replicas`` replicas."""
        return self.batches * self.accumulation * replicas * (self.micro_batch or 1)

    def leading_axes(self, replicas: int) -> tuple[int, ...]:
        """Return the axes before those of a sample: [batches, accumulation, replicas, micro-batch] without 1s."""
        loops = tuple(n for n in (self.batches, self.accumulation, replicas) if n != 1)
        return loops if self.micro_batch is None else (*loops, self.micro_batch)


@dataclass
class SampleOrder:
    """The order in which ``size`` samples are used; samples that do not fill a step of all replicas are left out."""

    size: int
    shape: BatchShape
    replica_range: ReplicaRange
    shuffle: bool = False
    seed: int = 0
    _shuffled: tuple[int, NDArray[Any]] = field(default=(-1, np.empty(0, np.int64)), repr=False)

    @property
    def steps(self) -> int:
        """Steps of an epoch; the same on every instance."""
        return self.size // self.shape.samples(self.replica_range.total)

    @property
    def contiguous(self) -> bool:
        """Whether the samples of a step are contiguous in the source."""
        return not self.shuffle and self.replica_range.local == self.replica_range.total

    def span(self, step: int, count: int) -> slice:
        """Return the positions, within an epoch, of the samples of ``count`` steps of all replicas."""
        global_batch = self.shape.samples(self.replica_range.total)
        return slice(step * global_batch, (step + count) * global_batch)

    def rows(self, epoch: int, step: int, count: int = 1) -> NDArray[np.int64]:
        """Return the indices of the samples that this instance uses in ``count`` steps, in data order."""
        span = self.span(step, count)
        block = self._permutation(epoch)[span] if self.shuffle else np.arange(span.start, span.stop)
        if self.replica_range.local == self.replica_range.total:
            return block
        return self.own(block)

    def own(self, block: NDArray[Any]) -> NDArray[Any]:
        """Return the part of ``block``, the samples of whole steps, that belongs to this instance, in data order."""
        replicas = block.reshape(-1, self.replica_range.total, self.shape.micro_batch or 1)
        return replicas[:, self.replica_range.offset : self.replica_range.offset + self.replica_range.local].reshape(
            -1
        )

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        known, order = self._shuffled
        if known != epoch:
            order = permutation(self.seed, epoch, self.size)
            self._shuffled = (epoch, order)
        return order


def permutation(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """Return the order of an epoch, from a counter-based generator: no state is kept between epochs."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, epoch], _U64)
    return np.random.Generator(np.random.Philox(key=key)).permutation(size)


def keys_of(seed: int, epoch: int, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return one random number per sample, a pure function of (seed, epoch, sample index)."""
    start = _mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], _U64))
    return _mix(rows.astype(_U64) + _mix(start + _U64(epoch)))


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014), after one step of its counter."""
    value = value + _U64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> _U64(27))) * _U64(0x94D049BB133111EB)
    return value ^ (value >> _U64(31))
