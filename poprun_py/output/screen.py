"""Screen: where the launcher writes: its stdout and its stderr and, on a terminal, a live view below all that."""

from __future__ import annotations

import os
from collections.abc import Callable

from poprun_py.output.tagged_output import STDERR, STDOUT
from poprun_py.output.writer_thread import Sink

__all__ = ["Screen"]


def _nothing() -> None:
    return


class Screen:
    """Takes whole lines for either stream, and a picture that stays below them until it is replaced.

    What is written has been dealt with when ``after_writes`` has called its ``done``. With a picture, lines for the
    terminal all go one way: picture off, lines, picture on.
    """

    def __init__(self, nudge: Callable[[], None], *, pictures: bool) -> None:
        self._sinks = {stream: Sink(stream, nudge) for stream in (STDOUT, STDERR)}
        self.terminals = [stream for stream in self._sinks if os.isatty(stream)]
        self.has_pictures = pictures and bool(self.terminals)
        self._picture = b""
        if self.has_pictures:
            last = self.terminals[-1]
            self._sinks |= dict.fromkeys(self.terminals, self._sinks[last])
            self._below = self._sinks[last]

    @property
    def is_mixed(self) -> bool:
        """Do both streams lead to the same place?"""
        first, second = os.fstat(STDOUT), os.fstat(STDERR)
        return (first.st_dev, first.st_ino, first.st_rdev) == (second.st_dev, second.st_ino, second.st_rdev)

    @property
    def has_color(self) -> bool:
        return STDERR in self.terminals and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    @property
    def is_broken(self) -> bool:
        """Does nobody read any more?"""
        return any(sink.is_broken for sink in self._sinks.values())

    def stdout(self, lines: bytes, done: Callable[[], None] = _nothing) -> None:
        self._put(STDOUT, lines, done)

    def stderr(self, lines: bytes, done: Callable[[], None] = _nothing) -> None:
        self._put(STDERR, lines, done)

    def start(self) -> None:
        """Begin to write."""
        for sink in set(self._sinks.values()):
            sink.start()

    def after_writes(self) -> None:
        """Tell those whose lines have been written."""
        for sink in set(self._sinks.values()):
            for done in sink.written():
                done()

    def draw(self, picture: bytes) -> None:
        """Put a picture (whole lines) below everything, in place of the last one; empty: none."""
        if self.has_pictures and picture != self._picture:
            self._below.put(_taking_off(self._picture) + _unwrapped(picture))
            self._picture = picture

    def close(self) -> None:
        """Take the picture off, and wait until everything is written."""
        self.draw(b"")
        for sink in set(self._sinks.values()):
            sink.close()

    def _put(self, stream: int, lines: bytes, done: Callable[[], None]) -> None:
        if self._picture and stream in self.terminals:
            lines = _taking_off(self._picture) + lines + _unwrapped(self._picture)
        self._sinks[stream].put(lines, done)


def _taking_off(picture: bytes) -> bytes:
    """Go to the first line of a picture and erase from there."""
    return b"\x1b[%dA\r\x1b[J" % picture.count(b"\n") if picture else b""


def _unwrapped(picture: bytes) -> bytes:
    """A picture each line of which takes one line of the terminal, however narrow that is."""
    return b"\x1b[?7l" + picture + b"\x1b[?7h" if picture else b""
