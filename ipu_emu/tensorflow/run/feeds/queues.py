"""Queues: infeed and outfeed queues with the behaviour of TensorFlow for the IPU.

An infeed gives each replica one element of its data per dequeue. An outfeed keeps all elements that replicas enqueue,
or the last ones:

    n enqueues of shape X, r replicas      ALL            LAST
    r = 1                                  [n, X]         X
    r > 1                                  [n, r, X]      [r, X]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.sample_order import ReplicaRange
from ipu_emu.hostio.data.sample_structure import Field, SampleStructure, structure_of
from ipu_emu.hostio.feeds.feed import Feed
from ipu_emu.tensorflow.run.feeds.prefetch_queue import ElementStream, PrefetchQueue

_DEFAULT_DEPTH = 3
_DEPTH_LIMIT = 256


class OutfeedMode(Enum):
    """Which elements an outfeed keeps."""

    ALL = "all"
    LAST = "get_last"

    @classmethod
    def of(cls, mode: OutfeedMode | str | None) -> OutfeedMode:
        """Return a mode by itself or its value; any other string is the feed name of old programs: all."""
        if isinstance(mode, OutfeedMode):
            return mode
        return next((known for known in cls if known.value == mode), cls.ALL)


class InfeedQueue:
    """A queue that gives elements of ``dataset`` to the local replicas; ``prefetch_depth`` are prepared ahead.

    The data set is one that a ``Feed`` reads, or a stream whose elements the replicas take in turn.
    """

    def __init__(
        self,
        dataset: Any,
        device_ordinal: int | str | None = None,
        prefetch_depth: int | None = None,
        optimise_latency: bool = False,
        *,
        replica_range: ReplicaRange | None = None,
    ) -> None:
        self.device_ordinal = check_ordinal(device_ordinal)
        self.prefetch_depth = check_prefetch_depth(prefetch_depth or _DEFAULT_DEPTH)
        self._replica_range = replica_range or ReplicaRange.of_instance()
        self._check(dataset)
        self._dataset = dataset
        self._elements: Feed | PrefetchQueue | None = None
        self._initialized = self.dequeued = False

    def _check(self, dataset: Any) -> None:
        """Raise ValueError if the element specification of a data set has open dimensions."""
        spec = getattr(dataset, "element_spec", None)
        parts = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, tuple) else (spec,)
        for part in parts:
            shape = getattr(part, "shape", ())
            if shape is None or any(length is None for length in shape):
                raise ValueError(
                    f"Output shape {shape} is not fully defined. If using tf.Dataset.batch, set "
                    "`drop_remainder=True`."
                )

    @property
    def number_of_tuple_elements(self) -> int:
        """Number of arrays of an element of a feed."""
        elements = self._started()
        assert isinstance(elements, Feed)
        return len(elements.fields)

    @property
    def initialized(self) -> bool:
        """Whether the queue prepares elements."""
        return self._elements is not None

    def initializer(self) -> None:
        """Start preparing elements; may be called only once."""
        if self._initialized:
            raise ValueError("The IPUInfeedQueue `initializer` function can only be called once.")
        self.restart(self._dataset)

    def restart(self, dataset: Any) -> None:
        """Replace the data set by ``dataset``, and prepare its elements from the beginning."""
        self.deleter()
        self._initialized = True
        if isinstance(dataset, ElementStream):
            self._elements = PrefetchQueue(dataset, self.prefetch_depth)
        else:
            self._elements = Feed(
                dataset, replica_range=self._replica_range, epochs=1, workers=1, prefetch=self.prefetch_depth
            )

    def next_arrays(self) -> list[NDArray[Any]]:
        """Return the arrays of the next element, those of a feed for all local replicas; raise StopIteration."""
        return self._started().next_arrays()

    def dequeue(self) -> list[Any]:
        """Return the next element of each local replica; raise StopIteration at the end of the data."""
        self.dequeued = True
        replicas, elements = self._replica_range.local, self._started()
        if isinstance(elements, PrefetchQueue):
            return [elements.next_arrays() for _ in range(replicas)]
        arrays = elements.next_arrays()
        if replicas == 1:
            return [elements.structure.join(arrays)]
        return [elements.structure.join([array[replica] for array in arrays]) for replica in range(replicas)]

    def _started(self) -> Feed | PrefetchQueue:
        if self._elements is None:
            raise FeedError("The infeed is not initialised; run its initializer before it is dequeued")
        return self._elements

    def deleter(self) -> None:
        """Stop preparing elements."""
        elements, self._elements = self._elements, None
        if elements is not None:
            elements.close()


class OutfeedQueue:
    """A queue of the elements that ``replicas`` replicas enqueue; one thread may put while another takes elements."""

    def __init__(
        self,
        outfeed_mode: OutfeedMode | str | None = None,
        device_ordinal: int | str | None = None,
        buffer_depth: int = _DEFAULT_DEPTH,
        *,
        replicas: int = 1,
    ) -> None:
        check_buffer_depth(buffer_depth)
        self.mode = OutfeedMode.of(outfeed_mode)
        self.device_ordinal, self.buffer_depth, self._replicas = check_ordinal(device_ordinal), buffer_depth, replicas
        self._structure: SampleStructure | None = None
        self._fields: list[Field] = []
        self._kept: deque[Sequence[NDArray[Any]]] = deque(maxlen=1 if self.mode is OutfeedMode.LAST else None)
        self._changed, self._ended = Condition(), True

    @property
    def is_empty(self) -> bool:
        """Whether no element is waiting."""
        return not self._kept

    def enqueue(self, element: Any) -> None:
        """Declare, once, the structure of an element: an array, or a tuple or dict of arrays."""
        if self._structure is not None:
            raise ValueError("An outfeed can only be enqueued once.")
        self._structure = structure_of(element)
        self._fields = [Field.of(array) for array in self._structure.split(element)]

    def begin(self) -> None:
        """Mark the start of a run that will put elements."""
        with self._changed:
            self._ended = False

    def put(self, elements: Sequence[Any]) -> None:
        """Copy one element of each replica into the queue."""
        structure = self._declared()
        if len(elements) != self._replicas:
            raise FeedError(
                f"An outfeed of {self._replicas} replicas was given {len(elements)} elements; give one per replica"
            )
        split = [structure.split(element) for element in elements]
        for position, field in enumerate(self._fields):
            for arrays in split:
                _check(arrays[position], field, structure.name(position))
        row = [np.stack([arrays[position] for arrays in split]) for position in range(len(self._fields))]
        self.put_rows(row if self._replicas == 1 else [array[None] for array in row])

    def put_rows(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Keep, without a copy, the arrays of several elements: [enqueues, ...], which must not change afterwards."""
        last = self.mode is OutfeedMode.LAST
        with self._changed:
            self._kept.append([array[-1:] for array in arrays] if last else arrays)
            self._changed.notify_all()

    def end(self) -> None:
        """Mark the end of the run."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def dequeue(self, wait_for_completion: bool = False, timeout: float = 120.0) -> Any:
        """Return all elements since the last call (ALL) or the last one, in the structure of an element."""
        structure = self._declared()
        if wait_for_completion:
            with self._changed:
                if not self._changed.wait_for(lambda: self._ended, timeout):
                    raise FeedError(
                        f"The run that fills the outfeed did not end within {timeout:g} s; check whether it is stuck"
                    )
        empty = (0,) if self._replicas == 1 else (0, self._replicas)
        taken = self.take() or [np.empty((*empty, *field.shape), field.dtype) for field in self._fields]
        return structure.join(taken)

    def take(self) -> list[NDArray[Any]]:
        """Return the arrays of all elements since the last call (ALL; [] without any), or of the last one (LAST)."""
        with self._changed:
            enqueued = list(self._kept)
            if self.mode is OutfeedMode.ALL:
                self._kept.clear()
        if self.mode is OutfeedMode.LAST:
            if not enqueued:
                raise FeedError("The outfeed is empty; run the program that enqueues it first")
            return [np.array(array[0]) for array in enqueued[0]]
        columns = zip(*enqueued, strict=True)
        return [np.concatenate(parts) if len(parts) > 1 else np.ascontiguousarray(parts[0]) for parts in columns]

    def _declared(self) -> SampleStructure:
        """Return the structure of an element; raise ValueError if it was not declared."""
        if self._structure is None:
            raise ValueError("Trying to dequeue an outfeed which has not been enqueued.")
        return self._structure


def check_ordinal(value: Any) -> int:
    """Return a device number; a string is the feed name of old programs, which is ignored."""
    if value is None or isinstance(value, str):
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("Device ordinal must be an integer")
    if value < 0:
        raise ValueError("Device ordinal must be >= 0")
    return value


def check_prefetch_depth(value: int) -> int:
    """Return a number of elements; raise ValueError if it is not a valid prefetch depth."""
    if not hasattr(type(value), "__index__"):
        raise ValueError(f"prefetch_depth must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError("prefetch_depth must be greater than zero")
    if value >= _DEPTH_LIMIT:
        raise ValueError(f"prefetch_depth must be less than {_DEPTH_LIMIT}")
    return value


def check_buffer_depth(value: int) -> None:
    """Raise ValueError for an invalid number of elements."""
    if not hasattr(type(value), "__index__"):
        raise ValueError(f"Outfeed buffer depth must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"Outfeed buffer depth cannot be less than 1, not {value}")


def _check(array: NDArray[Any], field: Field, name: str) -> None:
    if (array.dtype, array.shape) != (field.dtype, field.shape):
        actual = Field(array.dtype, array.shape)
        raise FeedError(f"{name} of an outfeed was enqueued as {field} and is now {actual}; keep shape and type")
