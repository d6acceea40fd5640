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

__all__ = ["InfeedQueue", "OutfeedMode", "OutfeedQueue"]

_DEFAULT_DEPTH = 3
_DEPTH_LIMIT = 256


class OutfeedMode(Enum):
    """Which elements an outfeed keeps."""

    ALL = "all"
    LAST = "get_last"


class InfeedQueue:
    """A queue that gives elements of ``dataset`` to the local replicas; ``prefetch_depth`` are prepared ahead."""

    def __init__(
        self,
        dataset: Any,
        device_ordinal: int | str | None = None,
        prefetch_depth: int | None = None,
        optimise_latency: bool = False,
        *,
        replica_range: ReplicaRange | None = None,
    ) -> None:
        self.device_ordinal = _ordinal(device_ordinal)
        self.prefetch_depth = prefetch_depth or _DEFAULT_DEPTH
        if not hasattr(type(self.prefetch_depth), "__index__"):
            raise ValueError(f"prefetch_depth must be a whole number, not {prefetch_depth!r}")
        if self.prefetch_depth < 1:
            raise ValueError(f"prefetch_depth must be greater than zero, not {prefetch_depth}")
        if self.prefetch_depth >= _DEPTH_LIMIT:
            raise ValueError(f"prefetch_depth must be less than {_DEPTH_LIMIT}, not {prefetch_depth}")
        self._replicas = (replica_range or ReplicaRange.of_instance()).local
        self._feed_arguments = {
            "data": dataset,
            "replica_range": replica_range,
            "epochs": 1,
            "workers": 1,
            "prefetch": self.prefetch_depth,
        }
        self._check(dataset)
        self._feed: Feed | None = None
        self.dequeued = False

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
        """Number of arrays of an element."""
        return len(self.feed.fields)

    @property
    def initialized(self) -> bool:
        """Whether the initializer has run."""
        return self._feed is not None

    @property
    def feed(self) -> Feed:
        """The feed of an initialised queue; raise FeedError before."""
        if self._feed is None:
            raise FeedError("The infeed is not initialised; run its initializer before it is dequeued")
        return self._feed

    def initializer(self) -> None:
        """Start to prepare elements; may be called only once."""
        if self._feed is not None:
            raise ValueError("The IPUInfeedQueue `initializer` function can only be called once.")
        self._feed = Feed(self._feed_arguments.pop("data"), **self._feed_arguments)

    def dequeue(self) -> list[Any]:
        """Return the next element of each local replica; raise StopIteration at the end of the data."""
        self.dequeued = True
        arrays = self.feed.next_arrays()
        if self._replicas == 1:
            return [self.feed.structure.join(arrays)]
        return [self.feed.structure.join([array[replica] for array in arrays]) for replica in range(self._replicas)]

    def deleter(self) -> None:
        """Stop the workers."""
        if self._feed is not None:
            self._feed.close()


class OutfeedQueue:
    """A queue of the elements that ``replicas`` replicas enqueue; one thread may put while another takes."""

    def __init__(
        self,
        outfeed_mode: OutfeedMode | str | None = None,
        device_ordinal: int | str | None = None,
        buffer_depth: int = _DEFAULT_DEPTH,
        *,
        replicas: int = 1,
    ) -> None:
        if buffer_depth < 1:
            raise ValueError(f"Outfeed buffer depth cannot be less than 1, not {buffer_depth}")
        self.mode = _outfeed_mode(outfeed_mode)
        self.device_ordinal, self.buffer_depth, self._replicas = _ordinal(device_ordinal), buffer_depth, replicas
        self._structure: SampleStructure | None = None
        self._fields: list[Field] = []
        self._enqueued = False
        self._kept: deque[list[NDArray[Any]]] = deque(maxlen=1 if self.mode is OutfeedMode.LAST else None)
        self._changed, self._ended = Condition(), True

    def enqueue(self, element: Any) -> None:
        """Declare, once, the structure of an element: an array, or a tuple or dict of arrays."""
        if self._enqueued:
            raise ValueError("An outfeed can only be enqueued once.")
        self._structure, self._enqueued = structure_of(element), True
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
        with self._changed:
            self._kept.append([array[0] for array in row] if self._replicas == 1 else row)
            self._changed.notify_all()

    def end(self) -> None:
        """Mark the end of the run."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def dequeue(self, wait_for_completion: bool = False, timeout: float = 120.0) -> Any:
        """Return all elements since the last call (ALL) or the last one, in the structure of an element."""
        structure = self._declared()
        with self._changed:
            if wait_for_completion and not self._changed.wait_for(lambda: self._ended, timeout):
                raise FeedError(
                    f"The run that fills the outfeed did not end within {timeout:g} s; check whether it is stuck"
                )
            if self.mode is OutfeedMode.LAST:
                if not self._kept:
                    raise FeedError("The outfeed is empty; run the program that enqueues it first")
                return structure.join([array.copy() for array in self._kept[-1]])
            rows, self._kept = list(self._kept), deque()
        empty = (0,) if self._replicas == 1 else (0, self._replicas)
        return structure.join(
            [
                np.stack([row[position] for row in rows]) if rows else np.empty((*empty, *field.shape), field.dtype)
                for position, field in enumerate(self._fields)
            ]
        )

    def _declared(self) -> SampleStructure:
        """Return the structure of an element; raise ValueError if it was not declared."""
        if self._structure is None:
            raise ValueError("Trying to dequeue an outfeed which has not been enqueued.")
        return self._structure


def _ordinal(value: int | str | None) -> int:
    """Return a device number; a string is the feed name of old programs, which is ignored."""
    if value is None or isinstance(value, str):
        return 0
    if type(value) is not int:
        raise ValueError(f"Device ordinal must be an integer, not {value!r}")
    if value < 0:
        raise ValueError(f"Device ordinal must be >= 0, not {value}")
    return value


def _outfeed_mode(mode: OutfeedMode | str | None) -> OutfeedMode:
    """Return a mode by itself or its value; any other string is the feed name of old programs, which is ignored."""
    if isinstance(mode, OutfeedMode):
        return mode
    return next((known for known in OutfeedMode if known.value == mode), OutfeedMode.ALL)


def _check(array: NDArray[Any], field: Field, name: str) -> None:
    if (array.dtype, array.shape) != (field.dtype, field.shape):
        found = Field(array.dtype, array.shape)
        raise FeedError(f"{name} of an outfeed was enqueued as {field} and is now {found}; keep shape and type")
