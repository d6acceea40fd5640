"""TokenQueue: tokens passed between threads; a waiting thread spins for a while before it sleeps.

Waking a sleeping thread takes 50 us or more on an idle machine, as long as a micro-batch of a small stage, and Linux
tends to wake it on the core of the waking thread, where it has to wait until that thread sleeps.
"""

from __future__ import annotations

from queue import SimpleQueue

import numpy as np

from gcl.kernels.atomics import fetch_add, has_reached, load_acquire, pause, store_release
from gcl.kernels.jit import bare
from gcl.kernels.system_calls import sched_getcpu

__all__ = ["TokenQueue"]

_LOOKS = 2000  # about 40 us
_SENT, _CORE = 0, 4  # offsets in the line of a queue: the number of tokens sent, and the core of the last sender
_LINE = 128  # bytes: two cache lines, because processors prefetch lines in pairs


class TokenQueue:
    """A queue with any number of senders and one receiver.

    Args:
        looks: whether the senders and the receiver have separate cores, so that the receiver may spin before it
        sleeps.
    """

    def __init__(self, *, looks: bool) -> None:
        self._looks = looks
        self._queue: SimpleQueue[bool] = SimpleQueue()
        self._line = np.zeros(_LINE // 4, np.int32)
        self._line[_CORE // 4] = -1
        self._address = self._line.ctypes.data
        self._received = 0

    def put(self, token: bool) -> None:
        """Send ``token``, also from several threads at once."""
        self._queue.put(token)
        if self._looks:
            _sent(self._address)

    def get(self) -> bool:
        """The next token."""
        self._received += 1
        if self._looks and self._queue.empty():
            _look(self._address, self._received, _LOOKS)
        return self._queue.get()


@bare
def _sent(line: int) -> None:
    store_release(line + _CORE, sched_getcpu())
    fetch_add(line + _SENT, np.int32(1))


@bare
def _look(line: int, wanted: int, looks: int) -> None:
    """Spin until ``wanted`` tokens have been sent, or for a while; not at all if the sender shares the core."""
    if load_acquire(line + _CORE) == sched_getcpu():
        return
    for _ in range(looks):
        if has_reached(line + _SENT, wanted):
            return
        pause()
