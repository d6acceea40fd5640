"""Feed: the steps of a data set, prepared ahead of the session that consumes them.

    source ──> workers prepare into slots ──> session
    steps 3 4     5 6 (in parallel)              2 (in use)        prefetch = 3

Order and content are those of a plain loop, whatever the number of workers, the prefetch depth and the number of
instances: global step data are [batches per step, accumulation, replicas, micro-batch...], and an instance gets the
part of its own replicas.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from numbers import Real
from typing import Any

from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, FeedError
from ipu_emu.hostio.data.data_modes import DataMode, GeneratedFiller, generated_step, mode_named, mode_of
from ipu_emu.hostio.data.preparation import PreparationFunction
from ipu_emu.hostio.data.sample_order import BatchShape, ReplicaRange, SampleOrder
from ipu_emu.hostio.data.sample_structure import Field, SampleStructure
from ipu_emu.hostio.data.slot_fillers import IndexedFiller, SlotFiller
from ipu_emu.hostio.probe.probe import Probe
from ipu_emu.hostio.workers.prefetcher import Prefetcher, WorkerSettings
from ipu_emu.hostio.workers.slot_ring import SlotContent
from ipu_emu.hostio.workers.source_opening import open_source


class Feed:
    """An iterator over steps, each an array, tuple or dict of arrays like a sample.

    The arrays of a step are valid until the next step is requested. ``data`` is any type that ``data.sources`` lists.

    - ``micro_batch``: samples per micro-batch; None if a sample of the source is a whole micro-batch.
    - ``prepare``: a function of a sample, or compiled transforms by array name.
    - ``replica_range``: the replicas of this instance; by default as poprun-py started it.
    - ``shuffle``, ``seed``: a different order in every epoch, the same on every instance; indexed sources only.
    - ``epochs``: None repeats the data without end.
    - ``steps``: the number of steps; FeedError is raised if the data end earlier.
    - ``workers``: 0 prepares in the caller's thread; None uses one less than this instance has CPUs.
    - ``processes``: whether workers are processes; by default if ``prepare`` is a Python function.
    - ``prefetch``: maximum number of steps prepared ahead, which bounds memory.
    - ``timeout``: maximum seconds to wait for a step; ``slow``: seconds after which a warning names a slow worker.
    - ``start``: the first step, to continue at the ``position`` of an earlier feed.
    - ``mode``: real, generated or synthetic data (see ``data.data_modes``); by default from the environment.
    """

    def __init__(
        self,
        data: Any,
        *,
        micro_batch: int | None = None,
        prepare: Any = None,
        batches_per_step: int = 1,
        accumulation: int = 1,
        replica_range: ReplicaRange | None = None,
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
        mode: DataMode | str | None = None,
    ) -> None:
        _check_numbers(
            {
                "micro_batch": (micro_batch, 1),
                "batches_per_step": (batches_per_step, 1),
                "accumulation": (accumulation, 1),
                "epochs": (epochs, 1),
                "steps": (steps, 1),
                "workers": (workers, 0),
                "prefetch": (prefetch, 1),
                "start": (start, 0),
            }
        )
        _check_start(start, steps)
        _check_seconds(timeout=timeout, slow=slow)
        self.position = start
        self.mode = mode_of(os.environ) if mode is None else mode_named(mode, f"mode={mode!r}")
        shape = BatchShape(batches_per_step, accumulation, micro_batch)
        replica_range = replica_range or ReplicaRange.of_instance()
        order = SampleOrder(0, shape, replica_range, shuffle, seed)
        filler, preparation = open_source(data, prepare, order, epochs=epochs, start=start, timeout=timeout)
        self.structure: SampleStructure = preparation.structure
        self.fields: list[Field] = preparation.fields
        self.samples = shape.samples(replica_range.local)
        self._indexed = isinstance(filler, IndexedFiller)
        self._order, self._limit, self._leading_axes = order, steps, shape.leading_axes(replica_range.local)
        python = isinstance(preparation, PreparationFunction)
        if self.mode is not DataMode.REAL:
            filler, python, processes = self._generated_filler(filler, epochs), False, None
            workers = 0 if self.mode is DataMode.SYNTHETIC else workers
        self._filler = filler
        processes = _in_processes(filler, processes, python)
        self._settings = WorkerSettings.for_filler(filler, workers, processes, prefetch, timeout, slow)
        self._prefetcher: Prefetcher | None = None
        self._steps: list[list[NDArray[Any]]] = []
        self._ended = False
        self._probe = Probe.from_environment(os.environ)
        if self._probe:
            self._probe.claim()

    def _generated_filler(self, real: SlotFiller, epochs: int | None) -> GeneratedFiller:
        left = self._order.steps * epochs - self.position if self._indexed and epochs is not None else None
        return generated_step(real, self.fields, self.samples, self.mode, left)

    # Iteration

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of an epoch; None if the source has no length."""
        return self._order.steps if self._indexed else None

    @property
    def nbytes(self) -> int:
        """Bytes of a step."""
        return self.samples * sum(field.nbytes for field in self.fields)

    @property
    def waited(self) -> float:
        """Seconds that the consumer has waited for data so far."""
        return self._prefetcher.waited / 1e9 if self._prefetcher else 0.0

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self._settings.workers

    @property
    def slot_nbytes(self) -> int:
        """Bytes of the slot ring, in which steps are prepared."""
        return self._prefetcher.nbytes if self._prefetcher else 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.structure.join(self.next_arrays())

    def next_arrays(self) -> list[NDArray[Any]]:
        """Return the arrays of the next step, in the order of ``structure.keys``; raise StopIteration at the end."""
        if self.position == self._limit or (self._probe and self._probe.is_complete(self)):
            self.close()
        if not self._steps:
            self._steps = self._next_slot()
        self.position += 1
        return self._steps.pop()

    def upcoming(self) -> list[NDArray[Any]] | None:
        """Return the next step's arrays if they are ready, else None; those of the current step become invalid."""
        if self._ended or self.position == self._limit:
            return None
        if not self._steps:
            if self._prefetcher is None or not self._prefetcher.ready:
                return None
            self._steps = self._next_slot()
        return self._steps[-1]

    def _next_slot(self) -> list[list[NDArray[Any]]]:
        """Return the steps of the next slot, last first."""
        if self._ended:
            raise StopIteration
        if self._prefetcher is None:
            self._prefetcher = Prefetcher(self._filler, self.fields, self.samples, self._leading_axes, self._settings)
        content, text, steps = self._prefetcher.next()
        if content is not SlotContent.DATA:
            self.close()
            self._report_end(content, text)
            raise StopIteration
        return steps

    def _report_end(self, content: SlotContent, text: str) -> None:
        """Raise FeedError after an error or an early end; warn of samples left over at a regular end."""
        if content is SlotContent.ERROR:
            raise FeedError(f"Step {self.position} could not be prepared: {text}")
        if self._limit is not None:
            raise FeedError(
                f"The source ended after {self.position} of {self._limit} steps; use fewer steps or more epochs"
            )
        if text:
            warnings.warn(text, stacklevel=5)

    # Closing

    def close(self) -> None:
        """Stop the workers; the feed gives no more steps."""
        if self._probe and not self._ended:
            self._probe.write(self)
        self._ended = True
        self._steps = []
        if self._prefetcher:
            self._prefetcher.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _check_numbers(numbers: dict[str, tuple[int | None, int]]) -> None:
    wrong = [
        f"{name}={value!r} (at least {least})" for name, (value, least) in numbers.items() if _below(value, least)
    ]
    if wrong:
        raise EmulatorError(f"A feed cannot have {', '.join(wrong)}; give integers that are not smaller")


def _check_start(start: int, steps: int | None) -> None:
    if steps is not None and start > steps:
        raise EmulatorError(f"start={start} is after steps={steps}, where the feed ends; give more steps")


def _in_processes(filler: SlotFiller, processes: bool | None, python: bool) -> bool:
    """Whether workers are processes: as ``processes``, by default if they run Python code of the user."""
    if processes and filler.threads_only:
        raise FeedError(f"processes=True: {filler.threads_only}; leave it out")
    return python and not filler.threads_only if processes is None else processes


def _check_seconds(**waits: object) -> None:
    for name, value in waits.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
            raise EmulatorError(f"A feed cannot have {name}={value!r}; give a number of seconds above 0")


def _below(value: int | None, least: int) -> bool:
    return value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < least)
