"""Prefetching: a thread that takes elements from a data set ahead of the program."""

from __future__ import annotations

from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.util import nest

__all__ = ["Prefetcher"]

_TICK = 0.1
_END = object()


class Prefetcher:
    """Takes up to ``depth`` elements of ``dataset`` ahead."""

    def __init__(self, dataset: Any, depth: int) -> None:
        self._queue: Queue[Any] = Queue(depth)
        self._closed = Event()
        self._ended: BaseException | None = None
        self._dataset = dataset
        self._thread = Thread(target=self._work, name="infeed", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with ops.init_scope(), context.eager_mode(), ops.device("CPU:0"):
                for element in self._dataset:
                    arrays = [tensor.numpy() for tensor in nest.flatten(element)]
                    if not self._put(arrays):
                        return
            self._put(_END)
        except BaseException as error:
            self._put(error)

    def _put(self, item: Any) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=_TICK)
                return True
            except Full:
                continue
        return False

    def take(self) -> list[Any]:
        """The arrays of the next element; raise OutOfRangeError at the end, or the error of the data set."""
        if self._ended is not None:
            raise self._ended
        while True:
            try:
                item = self._queue.get(timeout=_TICK)
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
