"""Wakeup: signals as something an event loop can wait for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

__all__ = ["Wakeup"]


class Wakeup:
    """Catches ``numbers``; readable when one has arrived. Only the main thread may make one."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:
                signal.signal(number, lambda *_: None)

    def fileno(self) -> int:
        return self._reader

    def nudge(self) -> None:
        """Make it readable from another thread."""
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:
            return  # it is readable already

    def read(self) -> set[int]:
        """The signals that have arrived since the last time."""
        return set(self.read_all()) - {0}

    def read_all(self) -> bytes:
        try:
            return os.read(self._reader, 4096)
        except BlockingIOError:
            return b""
