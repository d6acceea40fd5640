"""Pump: moves steps from a filling through slots to one consumer, with workers or without."""

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
from ipu_emu.hostio.data.slot_filling import Filling, StreamFilling
from ipu_emu.hostio.workers.slot_ring import Kind, Slots
from ipu_emu.hostio.workers.worker_pool import Crew, Processes, Threads, cause_of

__all__ = ["Pump", "Staff"]

_MOST_WORKERS = 8

#: The arrays of one step.
Arrays = list[NDArray[Any]]


@dataclass(frozen=True)
class Staff:
    """``workers`` threads or processes that prepare ``prefetch`` steps ahead; limits of time are in seconds."""

    workers: int
    processes: bool
    prefetch: int
    timeout: float
    slow: float

    @classmethod
    def for_filling(
        cls, filling: Filling, workers: int | None, processes: bool, prefetch: int, timeout: float, slow: float
    ) -> Staff:
        """Without ``workers``: one less than this instance has CPUs. A stream is read by one process."""
        if workers is None:
            cpus = len(os.sched_getaffinity(0)) // popdist_py.getNumInstances()
            workers = max(1, min(cpus - 1, _MOST_WORKERS))
        if processes and isinstance(filling, StreamFilling):
            workers = min(workers, 1)
        return cls(workers, processes, max(-(-prefetch // filling.burst), workers), timeout, slow)


class Pump:
    """The consumer's side; ``rows`` samples make a step, which is shown with the axes ``lead`` in front."""

    def __init__(
        self, filling: Filling, fields: Sequence[Field], rows: int, lead: tuple[int, ...], staff: Staff
    ) -> None:
        self.staff = staff
        self.waited = 0  # nanoseconds
        self._filling, self._lead, self._rows = filling, lead, rows
        count = staff.prefetch + 1 if staff.workers else 1
        self._slots = Slots(fields, rows * filling.burst, count=count, workers=max(1, staff.workers))
        self._views = [self._steps(arrays) for arrays in self._slots.arrays]
        self._taken = 0
        self._crew: Crew | None = None
        self._closing: Callable[[], object] = lambda: None
        if staff.workers:
            self._crew = (Processes if staff.processes else Threads)(self._slots, filling, staff.workers)
            self._closing = weakref.finalize(self, self._crew.close)

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return self._slots.nbytes

    @property
    def ready(self) -> bool:
        """Whether workers have announced data that nobody has to wait for."""
        return self._crew is not None and self._slots.is_ready(self._taken)

    def next(self) -> tuple[Kind, str, list[Arrays]]:
        """What the next slot holds: its kind, the text of an error or an end, and its steps, last first."""
        begin = perf_counter_ns()
        kind, text = self._fill() if self._crew is None else self._await(self._crew)
        self.waited += perf_counter_ns() - begin
        if kind is not Kind.DATA:
            return kind, text, []
        used = self._filling.used if self._taken == 0 else 0
        steps = self._views[self._taken % self._slots.count][used : self._filling.steps_in(self._taken)]
        self._taken += 1
        return kind, "", steps[::-1]

    def _await(self, crew: Crew) -> tuple[Kind, str]:
        if self._taken:
            self._slots.give_back()
        if not self._slots.wait_ready(self._taken, 0):
            try:
                crew.wait(self._taken, timeout=self.staff.timeout, slow=self.staff.slow)
            except BaseException:
                self.close()
                raise
        return self._slots.content(self._taken)

    def _fill(self) -> tuple[Kind, str]:
        """Prepare a slot in this thread; what needs no preparation is not even copied."""
        try:
            drawn = self._filling.draw(self._taken)
            if drawn is None:
                return Kind.END, self._filling.ending
            found = self._filling.views(drawn)
            if found is not None:
                self._views = [self._steps(found)]
            else:
                self._filling.fill(drawn, self._slots.arrays[0])
        except Exception as error:
            return Kind.ERROR, cause_of(error)
        return Kind.DATA, ""

    def _steps(self, arrays: Arrays) -> list[Arrays]:
        """Rows of samples as steps."""
        steps = len(arrays[0]) // self._rows
        shaped = [array.reshape(steps, *self._lead, *array.shape[1:]) for array in arrays]
        return [[array[step, ...] for array in shaped] for step in range(steps)]

    def close(self) -> None:
        """End the workers."""
        self._closing()
