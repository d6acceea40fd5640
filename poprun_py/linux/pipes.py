"""Pipes: the non-blocking ends of a program's stdin, stdout and stderr that its supervisor holds."""

from __future__ import annotations

import os

_PIECE = 1 << 16


class _Pipe:
    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self.is_open = True

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self._descriptor)


class OutputPipe(_Pipe):
    """The reading end of stdout (``number`` 1) or stderr (2)."""

    def __init__(self, number: int, descriptor: int) -> None:
        super().__init__(descriptor)
        self.number = number

    def read(self) -> bytes | None:
        """Return what has been written; empty at the end, None if nothing can be read now."""
        try:
            return os.read(self._descriptor, _PIECE)
        except BlockingIOError:
            return None


class InputPipe(_Pipe):
    """The writing end of stdin, and the data that is not written yet."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._pending = b""
        self._ends = False

    @property
    def is_waiting(self) -> bool:
        return bool(self._pending) or self._ends

    @property
    def is_finished(self) -> bool:
        return self._ends and not self._pending

    def give(self, data: bytes) -> None:
        """Queue ``data``; empty: close the pipe after what is queued. A closed pipe discards it."""
        self._pending += data
        self._ends = self._ends or not data

    def push(self) -> bool:
        """Write as much as the pipe accepts; return True once everything is written, or the reader is gone."""
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._descriptor, self._pending) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            self._pending, self._ends = b"", True
        return True
