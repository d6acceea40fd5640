"""Prefetcher: moves steps from a slot filler through the slot ring to one consumer, with or without workers."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from numpy.typing import NDArray

import popdist_py
from ipu_emu.hostio.data.sample_structure import Field
from ipu_emu.hostio.data.slot_fillers import SlotFiller, StreamFiller
from ipu_emu.hostio.workers.slot_ring import SlotContent, SlotRing
from ipu_emu.hostio.workers.worker_pool import WorkerPool, WorkerProcesses, WorkerThreads, cause_of
from popdist_py import trace

_MAX_WORKERS = 8

#: The arrays of one step.
StepArrays = list[NDArray[Any]]


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of the workers, which prepare ``prefetch`` slots ahead; ``timeout`` and ``slow`` are in seconds."""

    workers: int
    processes: bool
    prefetch: int
    timeout: float
    slow: float

    @classmethod
    def for_filler(
        cls, filler: SlotFiller, workers: int | None, processes: bool, prefetch: int, timeout: float, slow: float
    ) -> WorkerSettings:
        """Return the settings; ``workers`` defaults to this instance's CPUs less one. One process reads a stream."""
        if workers is None:
            cpus = len(os.sched_getaffinity(0)) // popdist_py.getNumInstances()
            workers = max(1, min(cpus - 1, _MAX_WORKERS))
        if processes and isinstance(filler, StreamFiller):
            workers = min(workers, 1)
        return cls(workers, processes, max(-(-prefetch // filler.burst), workers), timeout, slow)


class Prefetcher:
    """The consumer's side; a step has ``rows`` samples, and ``leading_axes`` before the axes of a sample."""

    def __init__(
        self,
        filler: SlotFiller,
        fields: Sequence[Field],
        rows: int,
        leading_axes: tuple[int, ...],
        settings: WorkerSettings,
    ) -> None:
        self.settings = settings
        self.waited = 0  # nanoseconds
        self._filler, self._leading_axes, self._rows = filler, leading_axes, rows
        count = settings.prefetch + 1 if settings.workers else 1
        self._slots = SlotRing(fields, rows * filler.burst, count=count, workers=max(1, settings.workers))
        self._views = [self._steps(arrays) for arrays in self._slots.arrays]
        self._consumed = 0
        self._pool: WorkerPool | None = None
        self._closing: Callable[[], object] = lambda: None
        if settings.workers:
            self._pool = (WorkerProcesses if settings.processes else WorkerThreads)(
                self._slots, filler, settings.workers
            )
            self._closing = weakref.finalize(self, self._pool.close)

    @property
    def nbytes(self) -> int:
        """Bytes of the slot ring."""
        return self._slots.nbytes

    @property
    def ready(self) -> bool:
        """Whether the next slot can be consumed without waiting."""
        return self._pool is not None and self._slots.is_ready(self._consumed)

    def next(self) -> tuple[SlotContent, str, list[StepArrays]]:
        """Return the next slot: its content, the text of an error or an end, and its steps, last first."""
        begin = perf_counter_ns()
        if self._pool is None:
            content, text = self._fill()
        else:
            with trace.span("wait for data", trace.Category.DATA):
                content, text = self._await(self._pool)
        self.waited += perf_counter_ns() - begin
        if content is not SlotContent.DATA:
            return content, text, []
        used = self._filler.used if self._consumed == 0 else 0
        steps = self._views[self._consumed % self._slots.count][used : self._filler.steps_in(self._consumed)]
        self._consumed += 1
        return content, "", steps[::-1]

    def _await(self, pool: WorkerPool) -> tuple[SlotContent, str]:
        if self._consumed:
            self._slots.release()
        if not self._slots.wait_ready(self._consumed, 0):
            try:
                pool.wait(self._consumed, timeout=self.settings.timeout, slow=self.settings.slow)
            except BaseException:
                self.close()
                raise
        return self._slots.content(self._consumed)

    @trace.span("prepare data", trace.Category.DATA)
    def _fill(self) -> tuple[SlotContent, str]:
        """Prepare a slot in this thread; samples that need no preparation are not copied."""
        try:
            drawn = self._filler.draw(self._consumed)
            if drawn is None:
                return SlotContent.END, self._filler.ending
            views = self._filler.views(drawn)
            if views is not None:
                self._views = [self._steps(views)]
            else:
                self._filler.fill(drawn, self._slots.arrays[0])
        except Exception as error:
            return SlotContent.ERROR, cause_of(error)
        return SlotContent.DATA, ""

    def _steps(self, arrays: StepArrays) -> list[StepArrays]:
        """Return the steps that rows of samples make up."""
        steps = len(arrays[0]) // self._rows
        shaped = [array.reshape(steps, *self._leading_axes, *array.shape[1:]) for array in arrays]
        return [[array[step, ...] for array in shaped] for step in range(steps)]

    def close(self) -> None:
        """Stop the workers."""
        self._closing()
