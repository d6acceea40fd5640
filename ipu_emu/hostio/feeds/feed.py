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
from collections.abc import Iterator
from numbers import Real
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, FeedError
from ipu_emu.hostio.data.data_modes import DataMode, MadeUp, made_up, mode_named, mode_of
from ipu_emu.hostio.data.preparation import Function
from ipu_emu.hostio.data.sample_order import Order, Shape, Share
from ipu_emu.hostio.data.sample_structure import Field, Form
from ipu_emu.hostio.data.slot_filling import Filling, IndexedFilling
from ipu_emu.hostio.probe.probe import Probe
from ipu_emu.hostio.workers.prefetcher import Pump, Staff
from ipu_emu.hostio.workers.slot_ring import Kind
from ipu_emu.hostio.workers.source_opening import open_source

__all__ = ["Feed"]


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
    - ``mode``: real data, or what stands in for it (see ``modes``); by default as the environment says.
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
        if steps is not None and start > steps:
            raise EmulatorError(f"start={start} lies behind steps={steps}, at which the feed ends; give more steps")
        self.position = start
        _check_seconds(timeout=timeout, slow=slow)
        self.mode = mode_of(os.environ) if mode is None else mode_named(mode, f"mode={mode!r}")
        shape, share = Shape(batches_per_step, accumulation, micro_batch), share or Share.of_instance()
        order = Order(0, shape, share, shuffle, seed)
        filling, preparation = open_source(data, prepare, order, epochs=epochs, start=start, timeout=timeout)
        self.form: Form = preparation.form
        self.fields: list[Field] = preparation.fields
        self.samples = shape.samples(share.local)
        self._indexed = isinstance(filling, IndexedFilling)
        self._order, self._limit, self._lead = order, steps, shape.lead(share.local)
        python = isinstance(preparation, Function)
        if self.mode is not DataMode.REAL:
            filling, python, processes = self._made_up(filling, epochs), False, None
            workers = 0 if self.mode is DataMode.SYNTHETIC else workers
        self._filling = filling
        if processes and filling.threads_only:
            raise FeedError(f"processes=True: {filling.threads_only}; leave it out")
        processes = python and not filling.threads_only if processes is None else processes
        self._staff = Staff.for_filling(filling, workers, processes, prefetch, timeout, slow)
        self._pump: Pump | None = None
        self._steps: list[list[NDArray[Any]]] = []
        self._ended = False
        self._probe = Probe.of(os.environ)
        if self._probe:
            self._probe.claim()

    def _made_up(self, real: Filling, epochs: int | None) -> MadeUp:
        left = self._order.steps * epochs - self.position if self._indexed and epochs is not None else None
        return made_up(real, self.fields, self.samples, self.mode, left)

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
        """Seconds for which the consumer has waited for data."""
        return self._pump.waited / 1e9 if self._pump else 0.0

    @property
    def workers(self) -> int:
        """Workers that prepare."""
        return self._staff.workers

    @property
    def slot_nbytes(self) -> int:
        """Bytes of the memory in which steps are prepared."""
        return self._pump.nbytes if self._pump else 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.form.join(self.next_arrays())

    def next_arrays(self) -> list[NDArray[Any]]:
        """The arrays of the next step, in the order of ``form.keys``; raise StopIteration at the end."""
        if self.position == self._limit or (self._probe and self._probe.enough(self)):
            self.close()
        if not self._steps:
            self._steps = self._next_slot()
        self.position += 1
        return self._steps.pop()

    def upcoming(self) -> list[NDArray[Any]] | None:
        """What ``next_arrays`` will return, if that is there already. To ask for it ends the validity of a step."""
        if self._ended or self.position == self._limit:
            return None
        if not self._steps:
            if self._pump is None or not self._pump.ready:
                return None
            self._steps = self._next_slot()
        return self._steps[-1]

    def _next_slot(self) -> list[list[NDArray[Any]]]:
        """The steps of the next slot, last first."""
        if self._ended:
            raise StopIteration
        if self._pump is None:
            self._pump = Pump(self._filling, self.fields, self.samples, self._lead, self._staff)
        kind, text, steps = self._pump.next()
        if kind is not Kind.DATA:
            self.close()
            self._explain(kind, text)
            raise StopIteration
        return steps

    def _explain(self, kind: Kind, text: str) -> None:
        """Raise what went wrong; say what is left over at a regular end."""
        if kind is Kind.ERROR:
            raise FeedError(f"Step {self.position} could not be prepared: {text}")
        if self._limit is not None:
            raise FeedError(
                f"The source ended after {self.position} of {self._limit} steps; ask for fewer steps or more epochs"
            )
        if text:
            warnings.warn(text, stacklevel=5)

    # The end

    def close(self) -> None:
        """End the workers; the feed gives no more steps."""
        if self._probe and not self._ended:
            self._probe.write(self)
        self._ended = True
        self._steps = []
        if self._pump:
            self._pump.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_numbers(numbers: dict[str, tuple[int | None, int]]) -> None:
    wrong = [
        f"{name}={value!r} (at least {least})" for name, (value, least) in numbers.items() if _below(value, least)
    ]
    if wrong:
        raise EmulatorError(f"A feed cannot have {', '.join(wrong)}; give whole numbers that are large enough")


def _check_seconds(**waits: object) -> None:
    for name, value in waits.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
            raise EmulatorError(f"A feed cannot have {name}={value!r}; give seconds above 0")


def _below(value: int | None, least: int) -> bool:
    return value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < least)
