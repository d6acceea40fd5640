"""Uninterrupted: a block that defers Ctrl-C to its end.

LLVM calls back into Python when it loads a kernel, and an exception in such a call is lost: Ctrl-C would be ignored,
or leave a kernel without code, which ends the process by SIGSEGV when it is called. TensorFlow ends the process by
SIGABRT where it expects no exception.
"""

from __future__ import annotations

# The functions of the module signal convert their arguments to enumerations, which takes ten times as long.
from _signal import getsignal, signal  # type: ignore[import-not-found]
from signal import SIGINT
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any


class uninterrupted:  # noqa: N801
    """Defers the handler of SIGINT to the end of the block; it only runs in the main thread in any case."""

    __slots__ = ("_arrived", "_handler")

    def __init__(self) -> None:
        self._handler: Any = None
        self._arrived: list[FrameType | None] = []

    def __enter__(self) -> None:
        if current_thread() is main_thread():
            handler = getsignal(SIGINT)
            if callable(handler):
                self._handler = handler
                signal(SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append(frame)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            signal(SIGINT, handler)
            if self._arrived:
                handler(SIGINT, self._arrived.pop())
