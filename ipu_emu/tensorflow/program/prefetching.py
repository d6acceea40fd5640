"""Prefetching: a thread that takes elements from a data set ahead of the program."""

from __future__ import annotations

import itertools
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from numpy.typing import NDArray
from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.ops import gen_dataset_ops

__all__ = ["Prefetcher", "arrays_of"]

_TICK = 0.1
_END = object()


class Prefetcher:
    """Takes up to ``depth`` elements of ``dataset`` ahead, which may be an iterator; ``most`` elements in all."""

    def __init__(self, dataset: Any, depth: int, most: int | None = None) -> None:
        self._left = itertools.count() if most is None else range(most)
        self._elements: SimpleQueue[Any] = SimpleQueue()
        self._places: SimpleQueue[None] = SimpleQueue()
        for _ in range(depth):
            self._places.put(None)
        self._closed = Event()
        self._ended: BaseException | None = None
        self._dataset = dataset
        self._thread = Thread(target=self._work, name="infeed", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with ops.init_scope(), context.eager_mode(), ops.device("CPU:0"):
                iterator = iter(self._dataset)
                for _ in self._left:
                    if not self._put(arrays_of(iterator)):
                        return
        except errors.OutOfRangeError:
            self._put(_END)
        except BaseException as error:
            self._put(error)

    def _put(self, item: Any) -> bool:
        """Wait for a place in the queue; return whether the item was put there."""
        while not self._closed.is_set():
            try:
                self._places.get(timeout=_TICK)
            except Empty:
                continue
            self._elements.put(item)
            return True
        return False

    def take(self) -> list[Any]:
        """The arrays of the next element; raise OutOfRangeError at the end, or the error of the data set."""
        if self._ended is not None:
            raise self._ended
        while True:
            try:
                item = self._elements.get(timeout=_TICK)
                self._places.put(None)
                break
            except Empty:
                if self._closed.is_set():
                    raise errors.CancelledError(None, None, "The infeed was deleted") from None
        if item is _END:
            self._ended = errors.OutOfRangeError(
                None, None, "The data set of the infeed has no more elements; repeat it, or run fewer iterations"
            )
            raise self._ended
        if isinstance(item, BaseException):
            self._ended = item
            raise item
        return list(item)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join(5.0)


def arrays_of(iterator: Any) -> list[NDArray[Any]]:
    """The arrays of the next element of an iterator in eager mode, which share the memory of TensorFlow's tensors.

    The iterator's op is called as such: a call of the iterator costs five times as much. OutOfRangeError is its end.
    """
    found = gen_dataset_ops.iterator_get_next(
        iterator._iterator_resource, iterator._flat_output_types, iterator._flat_output_shapes
    )
    return [tensor._numpy() for tensor in found]
