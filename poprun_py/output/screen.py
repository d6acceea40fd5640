"""Screen: the launcher's stdout and stderr, with a live view below them on a terminal."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from poprun_py.output.tag_colors import wants_color
from poprun_py.output.writer_thread import WriterThread
from poprun_py.wire.messages import STDERR, STDOUT


class Screen:
    """Writes whole lines to either stream, and draws a view that stays below them until it is replaced.

    ``after_writes`` calls the ``done`` function of all lines that have been written. While there is a view, lines for
    the terminal are written through one thread: erase the view, write the lines, draw the view.
    """

    def __init__(self, wake: Callable[[], None], *, live_view: bool) -> None:
        self._writers = {stream: WriterThread(stream, wake) for stream in (STDOUT, STDERR)}
        self.terminals = [stream for stream in self._writers if os.isatty(stream)]
        self.has_live_view = live_view and bool(self.terminals)
        self._view = b""
        if self.has_live_view:
            last = self.terminals[-1]
            self._writers |= dict.fromkeys(self.terminals, self._writers[last])
            self._below = self._writers[last]

    @property
    def is_mixed(self) -> bool:
        """Whether both streams are the same file."""
        first, second = os.fstat(STDOUT), os.fstat(STDERR)
        return (first.st_dev, first.st_ino, first.st_rdev) == (second.st_dev, second.st_ino, second.st_rdev)

    @property
    def has_color(self) -> bool:
        return STDERR in self.terminals and wants_color(os.environ)

    @property
    def is_broken(self) -> bool:
        """Whether a stream can no longer be written."""
        return any(sink.error for sink in self._writers.values())

    @property
    def fault(self) -> str:
        """Why a stream cannot be written, other than that its reader has closed it; else ''."""
        return next((sink.error for sink in self._writers.values() if sink.error and sink.errno != errno.EPIPE), "")

    @property
    def has_hung_up(self) -> bool:
        """Whether a terminal has hung up."""
        return any(self._writers[stream].errno == errno.EIO for stream in self.terminals)

    def stdout(self, lines: bytes, done: Callable[[], None] = lambda: None) -> None:
        self._put(STDOUT, lines, done)

    def stderr(self, lines: bytes, done: Callable[[], None] = lambda: None) -> None:
        self._put(STDERR, lines, done)

    def start(self) -> None:
        """Start writing."""
        for sink in set(self._writers.values()):
            sink.start()

    def after_writes(self) -> None:
        """Call the ``done`` functions of the lines that have been written."""
        for sink in set(self._writers.values()):
            for done in sink.written():
                done()

    def draw(self, view: bytes) -> None:
        """Draw ``view`` (whole lines) below everything, in place of the last one; empty: none."""
        if self.has_live_view and view != self._view:
            self._below.put(_erasing(self._view) + _unwrapped(view))
            self._view = view

    def close(self) -> None:
        """Erase the view, and wait until everything is written."""
        self.draw(b"")
        for sink in set(self._writers.values()):
            sink.close()

    def _put(self, stream: int, lines: bytes, done: Callable[[], None]) -> None:
        if self._view and stream in self.terminals:
            lines = _erasing(self._view) + lines + _unwrapped(self._view)
        self._writers[stream].put(lines, done)


def _erasing(view: bytes) -> bytes:
    """The control sequence that goes to the first line of a view and erases from there."""
    return b"\x1b[%dA\r\x1b[J" % view.count(b"\n") if view else b""


def _unwrapped(view: bytes) -> bytes:
    """The view, with line wrap off: each line takes one line of the terminal, however narrow that is."""
    return b"\x1b[?7l" + view + b"\x1b[?7h" if view else b""
