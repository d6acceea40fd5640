"""Sink: a descriptor that is written by a thread, so that a slow reader never stops the event loop."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Sink"]


class Sink:
    """Writes what it is given, in order; ``nudge`` is called from its thread after each write.

    Whoever fills it bounds it: everything put is kept until it is written, and reported by ``written``. Nothing is
    written before ``start``.
    """

    def __init__(self, descriptor: int, nudge: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._nudge = nudge
        self._queue: deque[tuple[bytes, Callable[[], None]]] = deque()
        self._written: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ends = False
        self.is_broken = False  # nobody reads any more

    def put(self, data: bytes, done: Callable[[], None] = lambda: None) -> None:
        """Queue ``data``; ``done`` is among what ``written`` returns afterwards."""
        with self._changed:
            self._queue.append((data, done))
            self._changed.notify()

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()

    def written(self) -> list[Callable[[], None]]:
        """The ``done`` calls of what has been written since the last time."""
        return [self._written.popleft() for _ in range(len(self._written))]

    def close(self, *, timeout: float | None = None) -> bool:
        """Write what is left and end the thread; False when the reader does not take it in time."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._ends)
                batch = list(self._queue)
                self._queue.clear()
            if not batch:
                return
            self._write(b"".join(data for data, _ in batch))
            self._written.extend(done for _, done in batch)
            self._nudge()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.is_broken:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # somebody else made it non-blocking
                os.set_blocking(self._descriptor, True)
            except OSError:
                self.is_broken = True
