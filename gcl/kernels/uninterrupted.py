"""Uninterrupted: a block in which Ctrl-C waits until its end.

LLVM calls back into Python when it loads a kernel, and an exception in such a call is lost: Ctrl-C would be ignored,
or leave a kernel without code, which ends the process by SIGSEGV when it is called.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let the handler of SIGINT run after the block; in other threads than the main one it never runs within it."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    arrived: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: arrived.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if arrived:
            handler(signal.SIGINT, arrived[0])
