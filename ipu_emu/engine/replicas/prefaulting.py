"""Prefaulting: a thread faults in the pages of weights while a program is bound to their memory.

The kernel provides a page of new memory when it is first written to, which takes longer than filling it: 0.2 of the
0.25 s in which the 418 MiB of BERT-base's weights were copied to a new engine. A thread does this while the main
thread binds the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread

import numpy as np
from numpy.typing import NDArray

__all__ = ["prefaulted"]

_PAGE = 4096


@contextmanager
def prefaulted(ranges: Sequence[NDArray[np.uint8]]) -> Iterator[None]:
    """Fault in the pages of ``ranges`` during the block, which must not write to them; they remain zero."""
    if not ranges:
        yield
        return
    thread = Thread(target=_touch, args=(ranges,), name="early pages")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _touch(ranges: Sequence[NDArray[np.uint8]]) -> None:
    """Write a zero to each page, in one NumPy call that releases the GIL.

    madvise(MADV_POPULATE_WRITE) would take three quarters of the time, but binding waits for it whenever it needs
    memory of its own.
    """
    for part in ranges:
        part[::_PAGE] = 0
