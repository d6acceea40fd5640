"""Queues: infeeds and outfeeds as TensorFlow for the IPU has them, without its face.

An infeed gives each replica one element of its data per dequeue. An outfeed keeps what replicas enqueue, or the last
of it:

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
from ipu_emu.hostio.data.sample_order import Share
from ipu_emu.hostio.data.sample_structure import Field, Form, form_of
from ipu_emu.hostio.feeds.feed import Feed

__all__ = ["InfeedQueue", "OutfeedMode", "OutfeedQueue"]

_DEFAULT_DEPTH = 3
_DEPTHS = 256


class OutfeedMode(Enum):
    """What an outfeed keeps."""

    ALL = "all"
    LAST = "get_last"


class InfeedQueue:
    """Elements of ``dataset`` for the replicas of this instance; ``prefetch_depth`` elements are prepared ahead."""

    def __init__(
        self,
        dataset: Any,
        device_ordinal: int | str | None = None,
        prefetch_depth: int | None = None,
        optimise_latency: bool = False,
        *,
        share: Share | None = None,
    ) -> None:
        self.device_ordinal = _ordinal(device_ordinal)
        self.prefetch_depth = prefetch_depth or _DEFAULT_DEPTH
        if self.prefetch_depth < 1:
            raise ValueError(f"prefetch_depth must be greater than zero, not {prefetch_depth}")
        if self.prefetch_depth >= _DEPTHS:
            raise ValueError(f"prefetch_depth must be less than {_DEPTHS}, not {prefetch_depth}")
        self._replicas = (share or Share.of_instance()).local
        self._open = {"data": dataset, "share": share, "epochs": 1, "workers": 1, "prefetch": self.prefetch_depth}
        self._check(dataset)
        self._feed: Feed | None = None
        self.dequeued = False

    def _check(self, dataset: Any) -> None:
        """A data set that says what it holds must know all shapes."""
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
        """Arrays of an element."""
        return len(self.feed.fields)

    @property
    def initialized(self) -> bool:
        """Whether the initializer has run."""
        return self._feed is not None

    @property
    def feed(self) -> Feed:
        """The feed of an initialised queue."""
        if self._feed is None:
            raise FeedError("The infeed has no data yet; run its initializer before it is dequeued")
        return self._feed

    def initializer(self) -> None:
        """Begin to prepare elements; only once."""
        if self._feed is not None:
            raise ValueError("The IPUInfeedQueue `initializer` function can only be called once.")
        self._feed = Feed(self._open.pop("data"), **self._open)

    def dequeue(self) -> list[Any]:
        """The next element of each local replica; raise StopIteration at the end of the data."""
        self.dequeued = True
        arrays = self.feed.next_arrays()
        if self._replicas == 1:
            return [self.feed.form.join(arrays)]
        return [self.feed.form.join([array[replica] for array in arrays]) for replica in range(self._replicas)]

    def deleter(self) -> None:
        """End the workers."""
        if self._feed is not None:
            self._feed.close()


class OutfeedQueue:
    """What ``replicas`` replicas enqueue; one thread may put while another takes."""

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
        self._form: Form | None = None
        self._fields: list[Field] = []
        self._enqueued = False
        self._kept: deque[list[NDArray[Any]]] = deque(maxlen=1 if self.mode is OutfeedMode.LAST else None)
        self._changed, self._ended = Condition(), True

    def enqueue(self, element: Any) -> None:
        """Say, once, what a replica puts into the queue: an array, or a tuple or dict of arrays."""
        if self._enqueued:
            raise ValueError("An outfeed can only be enqueued once.")
        self._form, self._enqueued = form_of(element), True
        self._fields = [Field.of(array) for array in self._form.split(element)]

    def begin(self) -> None:
        """A run begins that will put elements."""
        with self._changed:
            self._ended = False

    def put(self, elements: Sequence[Any]) -> None:
        """Copy one element of each replica into the queue."""
        form = self._known()
        if len(elements) != self._replicas:
            raise FeedError(
                f"An outfeed of {self._replicas} replicas was given {len(elements)} elements; give one each"
            )
        split = [form.split(element) for element in elements]
        for position, field in enumerate(self._fields):
            for arrays in split:
                _check(arrays[position], field, form.name(position))
        row = [np.stack([arrays[position] for arrays in split]) for position in range(len(self._fields))]
        with self._changed:
            self._kept.append([array[0] for array in row] if self._replicas == 1 else row)
            self._changed.notify_all()

    def end(self) -> None:
        """The run is over."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def dequeue(self, wait_for_completion: bool = False, timeout: float = 120.0) -> Any:
        """All elements since the last call, or the last one; their structure is that of one element."""
        form = self._known()
        with self._changed:
            if wait_for_completion and not self._changed.wait_for(lambda: self._ended, timeout):
                raise FeedError(f"The run that fills the outfeed did not end within {timeout:g} s; is it stuck?")
            if self.mode is OutfeedMode.LAST:
                if not self._kept:
                    raise FeedError("The outfeed is empty; run the program that enqueues it first")
                return form.join([array.copy() for array in self._kept[-1]])
            rows, self._kept = list(self._kept), deque()
        lead = (0,) if self._replicas == 1 else (0, self._replicas)
        return form.join(
            [
                np.stack([row[position] for row in rows]) if rows else np.empty((*lead, *field.shape), field.dtype)
                for position, field in enumerate(self._fields)
            ]
        )

    def _known(self) -> Form:
        """The form of an element."""
        if self._form is None:
            raise ValueError("Trying to dequeue an outfeed which has not been enqueued.")
        return self._form


def _ordinal(value: int | str | None) -> int:
    """A device number; the place was once a feed's name, which is ignored."""
    if value is None or isinstance(value, str):
        return 0
    if type(value) is not int:
        raise ValueError(f"Device ordinal must be an integer, not {value!r}")
    if value < 0:
        raise ValueError(f"Device ordinal must be >= 0, not {value}")
    return value


def _outfeed_mode(mode: OutfeedMode | str | None) -> OutfeedMode:
    """A mode or its value; any other text is taken for a feed's name of old programs, and ignored."""
    if isinstance(mode, OutfeedMode):
        return mode
    return next((known for known in OutfeedMode if known.value == mode), OutfeedMode.ALL)


def _check(array: NDArray[Any], field: Field, name: str) -> None:
    if (array.dtype, array.shape) != (field.dtype, field.shape):
        found = Field(array.dtype, array.shape)
        raise FeedError(f"{name} of an outfeed was enqueued as {field} and is now {found}; keep shape and type")
