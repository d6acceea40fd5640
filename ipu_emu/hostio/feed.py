"""Feed: the steps of a data set, prepared ahead of the session that uses them.

    source ──> workers prepare into slots ──> session
    step 3 4      5 6 (side by side)             2 (in use)        prefetch = 3

Order and content are those of a plain loop, whatever the number of workers, the prefetch depth and the number of
instances: global step data are [batches per step, accumulation, replicas, micro-batch...], of which an instance gets
the part of its own replicas.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

import popdist_py
from ipu_emu.errors import EmulatorError, FeedError
from ipu_emu.hostio.crew import Crew, Processes, Threads, cause_of
from ipu_emu.hostio.filling import IndexedFilling, StreamFilling
from ipu_emu.hostio.opening import open_source
from ipu_emu.hostio.order import Order, Shape, Share
from ipu_emu.hostio.preparation import Function
from ipu_emu.hostio.slots import Kind, Slots
from ipu_emu.hostio.structure import Form

__all__ = ["Feed"]

_MOST_WORKERS = 8


class Feed:
    """An iterator over steps; each is a structure of arrays like a sample's.

    The arrays of a step are valid until the next step is asked for. ``data`` is anything that ``sources`` lists.

    - ``micro_batch``: samples per micro-batch; None if the source's samples are micro-batches already.
    - ``prepare``: a function of a sample, or compiled ``transforms`` by the name of an array.
    - ``shuffle``, ``seed``: another order in every epoch, the same on every instance; sources with an index only.
    - ``epochs``: None repeats the data without end. ``steps``: end there; it is an error if the data end before.
    - ``workers``: 0 prepares in the caller's thread; None takes what this instance's CPUs allow. ``processes`` says
      of what kind they are; by default processes if ``prepare`` is a Python function, threads otherwise.
    - ``prefetch``: steps that are prepared ahead at most, which bounds memory.
    - ``timeout``: seconds that a step may take to come, ``slow``: seconds after which a slow worker is named.
    - ``start``: the first step, to go on where an earlier feed's ``position`` was.
    """

    def __init__(
        self,
        data: Any,
        *,
        micro_batch: int | None = None,
        prepare: Any = None,
        batches_per_step: int = 1,
        accumulation: int = 1,
        share: Share | None = None,
        shuffle: bool = False,
        seed: int = 0,
        epochs: int | None = 1,
        steps: int | None = None,
        workers: int | None = None,
        processes: bool | None = None,
        prefetch: int = 3,
        timeout: float = 120.0,
        slow: float = 5.0,
        start: int = 0,
    ) -> None:
        _check_numbers(
            {
                "micro_batch": (micro_batch, 1),
                "batches_per_step": (batches_per_step, 1),
                "accumulation": (accumulation, 1),
                "epochs": (epochs, 1),
                "steps": (steps, 0),
                "workers": (workers, 0),
                "prefetch": (prefetch, 1),
                "start": (start, 0),
            }
        )
        self.position = start
        self.waited = 0
        self._limit = steps
        self._timeout, self._slow = timeout, slow
        shape = Shape(batches_per_step, accumulation, micro_batch)
        self._share = share or Share.of_instance()
        order = Order(0, shape, self._share, shuffle, seed)
        self._filling, preparation = open_source(data, prepare, order, epochs=epochs, start=start, timeout=timeout)
        self.form: Form = preparation.form
        self.fields = preparation.fields
        self._lead = shape.lead(self._share.local)
        self._rows = shape.samples(self._share.local)
        self._processes = isinstance(preparation, Function) if processes is None else processes
        self._workers = self._crew_size(workers)
        self._prefetch = max(-(-prefetch // self._filling.burst), self._workers)
        self._steps: list[list[NDArray[Any]]] = []
        self._taken = 0
        self._ended = False
        self._slots: Slots | None = None
        self._crew: Crew | None = None
        self._closing: Callable[[], object] = lambda: None

    def _crew_size(self, workers: int | None) -> int:
        if workers is None:
            cpus = len(os.sched_getaffinity(0)) // popdist_py.getNumInstances()
            workers = max(1, min(cpus - 1, _MOST_WORKERS))
        single = self._processes and isinstance(self._filling, StreamFilling)
        return min(workers, 1) if single else workers

    # Iteration

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of an epoch; None if the source has no length."""
        return self._filling.order.steps if isinstance(self._filling, IndexedFilling) else None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.form.join(self.next_arrays())

    def next_arrays(self) -> list[NDArray[Any]]:
        """The arrays of the next step, in the order of ``form.keys``; raise StopIteration at the end."""
        if self.position == self._limit:
            self.close()
            raise StopIteration
        if not self._steps:
            self._steps = self._next_slot()
        self.position += 1
        return self._steps.pop()

    def _next_slot(self) -> list[list[NDArray[Any]]]:
        """The steps of the next slot, last first."""
        if self._ended:
            raise StopIteration
        if self._slots is None:
            self._begin()
        assert self._slots is not None
        begin = perf_counter_ns()
        kind, text = self._fill_one() if self._crew is None else self._await(self._crew, self._slots)
        self.waited += perf_counter_ns() - begin
        if kind is not Kind.DATA:
            self.close()
            self._explain(kind, text)
            raise StopIteration
        used = self._filling.used if self._taken == 0 else 0
        steps = self._views[self._taken % self._slots.count][used : self._filling.steps_in(self._taken)]
        self._taken += 1
        return steps[::-1]

    def _explain(self, kind: Kind, text: str) -> None:
        """Raise what went wrong; say what is left over at a regular end."""
        if kind is Kind.ERROR:
            raise FeedError(f"Step {self.position} could not be prepared: {text}")
        if self._limit is not None:
            raise FeedError(
                f"The source ended after {self.position} of {self._limit} steps; ask for fewer steps or more epochs"
            )
        if text:
            warnings.warn(text, stacklevel=4)

    def _begin(self) -> None:
        """Make the slots and start the workers, at the first step."""
        count = self._prefetch + 1 if self._workers else 1
        rows = self._rows * self._filling.burst
        self._slots = Slots(self.fields, rows, count=count, workers=max(1, self._workers))
        self._views = [self._parted(slot) for slot in self._slots.arrays]
        if self._workers:
            kind = Processes if self._processes else Threads
            self._crew = kind(self._slots, self._filling, self._workers)
            self._closing = weakref.finalize(self, self._crew.close)

    def _parted(self, arrays: list[NDArray[Any]]) -> list[list[NDArray[Any]]]:
        """Rows of samples as steps."""
        steps = len(arrays[0]) // self._rows
        shaped = [array.reshape(steps, *self._lead, *array.shape[1:]) for array in arrays]
        return [[array[step, ...] for array in shaped] for step in range(steps)]

    def _await(self, crew: Crew, slots: Slots) -> tuple[Kind, str]:
        if self._taken:
            slots.give_back()
        if not slots.wait_ready(self._taken, 0):
            try:
                crew.wait(self._taken, timeout=self._timeout, slow=self._slow)
            except BaseException:
                self.close()
                raise
        return slots.content(self._taken)

    def _fill_one(self) -> tuple[Kind, str]:
        """Prepare a slot in this thread; what needs no preparation is not even copied."""
        assert self._slots is not None
        try:
            drawn = self._filling.draw(self._taken)
            if drawn is None:
                return Kind.END, self._filling.ending
            found = self._filling.views(drawn)
            if found is not None:
                self._views = [self._parted(found)]
            else:
                self._filling.fill(drawn, self._slots.arrays[0])
        except Exception as error:
            return Kind.ERROR, cause_of(error)
        return Kind.DATA, ""

    # The end

    def close(self) -> None:
        """End the workers; the feed gives no more steps."""
        self._ended = True
        self._closing()

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_numbers(numbers: dict[str, tuple[int | None, int]]) -> None:
    wrong = [f"{name}={value} (at least {least})" for name, (value, least) in numbers.items() if _below(value, least)]
    if wrong:
        raise EmulatorError(f"A feed cannot have {', '.join(wrong)}; give whole numbers that are large enough")


def _below(value: int | None, least: int) -> bool:
    return value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < least)
