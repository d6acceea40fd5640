"""Early pages: memory of weights that the system provides to a thread, while a program is bound to it.

A page of new memory is made when it is first written to, which takes longer than to fill it: of the 0.25 s in which
BERT-base's 418 MiB of weights were copied to a new engine, 0.2 s. A thread spends them beside the binding, which
holds Python's interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread

import numpy as np
from numpy.typing import NDArray

__all__ = ["early_pages"]

_PAGE = 4096


@contextmanager
def early_pages(ranges: Sequence[NDArray[np.uint8]]) -> Iterator[None]:
    """Make the pages of ``ranges`` during the block, which must not write to them: they are zero before and after."""
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
    """Write a zero to each page, in one call of NumPy's without the interpreter's lock.

    madvise(MADV_POPULATE_WRITE) would take three quarters of the time, but binding waits for it whenever it needs
    memory of its own.
    """
    for part in ranges:
        part[::_PAGE] = 0
