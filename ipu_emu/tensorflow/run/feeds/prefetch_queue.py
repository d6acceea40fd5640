"""Prefetch queue: a thread that takes elements from a data set ahead of the program."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from itertools import islice
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from numpy.typing import NDArray

from ipu_emu.errors import FeedError
from popdist_py import trace

_CLOSE_SECONDS = 5.0
_END, _CLOSE = object(), object()

#: Opens a data set, in the thread that takes its elements: lists of arrays that stay valid.
ElementStream = Callable[[], Iterable[list[NDArray[Any]]]]


class QueueClosed(FeedError):
    """An element was requested from a closed queue."""


class PrefetchQueue:
    """Reads up to ``depth`` elements of a stream ahead, ``most`` in total; closed when it is garbage-collected."""

    def __init__(self, stream: ElementStream, depth: int, most: int | None = None) -> None:
        self._elements: SimpleQueue[Any] = SimpleQueue()
        self._places: SimpleQueue[None] = SimpleQueue()
        for _ in range(depth):
            self._places.put(None)
        self._ended: BaseException | None = None
        closed = Event()
        self._end = weakref.finalize(self, _end, self._elements, self._places, closed)
        arguments = (stream, most, self._elements, self._places, closed)
        self._thread = Thread(target=_fill, args=arguments, name="infeed", daemon=True)
        self._thread.start()

    def next_arrays(self) -> list[NDArray[Any]]:
        """Return the arrays of the next element; raise StopIteration at the end, or the error of the data set."""
        if self._ended is not None:
            raise self._ended
        item = self._next()
        if type(item) is list:
            self._places.put(None)
            return item
        if item is _CLOSE:
            self._elements.put(_CLOSE)  # for other waiting threads
            raise QueueClosed("The infeed was deleted while a program took an element; delete it after the program")
        self._ended = StopIteration() if item is _END else item
        raise self._ended

    def _next(self) -> Any:
        if not self._elements.empty():
            return self._elements.get()
        with trace.span("wait for data", trace.Category.DATA):
            return self._elements.get()

    def close(self) -> None:
        """End the thread; one that is stuck in the data set remains until the process ends."""
        self._end()
        self._thread.join(_CLOSE_SECONDS)


def _fill(
    stream: ElementStream, most: int | None, elements: SimpleQueue[Any], places: SimpleQueue[None], closed: Event
) -> None:
    """Put elements, and finally the end or an error, into the queue as places become free."""

    def put(item: Any) -> bool:
        places.get()
        if not closed.is_set():
            elements.put(item)
        return not closed.is_set()

    try:
        for element in islice(stream(), most):
            if not put(element):
                return
    except BaseException as error:
        put(error)
    else:
        put(_END)


def _end(elements: SimpleQueue[Any], places: SimpleQueue[None], closed: Event) -> None:
    closed.set()
    places.put(None)
    elements.put(_CLOSE)
