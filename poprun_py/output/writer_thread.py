"""Writer thread: a thread that writes to descriptors, so that a slow reader never blocks the event loop."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from poprun_py.errors import PROCESS_LIMIT_ADVICE, PoprunError


class WriterThread:
    """Writes data in order; ``wake`` is called from the thread after each write.

    The queue is unbounded: callers limit what they ``put`` by what ``written`` reports. Nothing is written before
    ``start``.
    """

    def __init__(self, descriptor: int, wake: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._nudge = wake
        self._queue: deque[tuple[int, bytes, Callable[[], None]]] = deque()
        self._written: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self.error = ""  # why writing stopped: the reader is gone, the disk is full
        self.errno = 0

    def put(self, data: bytes, done: Callable[[], None] = lambda: None, *, to: int | None = None) -> None:
        """Queue ``data`` (``to``: another descriptor); ``written`` returns ``done`` once it is written."""
        with self._changed:
            self._queue.append((self._descriptor if to is None else to, data, done))
            self._changed.notify()

    def start(self) -> None:
        """Start writing; may be called again after ``close``. Raise PoprunError if no thread can be started."""
        self._is_closing = False
        thread = threading.Thread(target=self._write_all, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            raise PoprunError(f"the launcher can start no thread; {PROCESS_LIMIT_ADVICE}") from None
        self._thread = thread

    def written(self) -> list[Callable[[], None]]:
        """Return the ``done`` functions of what has been written since the last call."""
        return [self._written.popleft() for _ in range(len(self._written))]

    def close(self, *, timeout: float | None = None) -> bool:
        """Write what is queued and end the thread; return False if that takes more than ``timeout`` seconds."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closing)
                batch = list(self._queue)
                self._queue.clear()
            if not batch:
                return
            for descriptor, items in groupby(batch, key=itemgetter(0)):
                self._write(descriptor, b"".join(data for _, data, _ in items))
            self._written.extend(done for _, _, done in batch)
            self._nudge()

    def _write(self, descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        while view and not self.error:
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:  # another process made it non-blocking
                os.set_blocking(descriptor, True)
            except OSError as error:
                self.errno = error.errno or 0
                self.error = error.strerror or str(error)
