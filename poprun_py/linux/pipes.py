"""Pipes: the ends of a program's stdin, stdout and stderr that its supervisor holds; none of them ever blocks."""

from __future__ import annotations

import os

__all__ = ["InputPipe", "OutputPipe"]

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
        """What has been written; empty at its end, None when nothing is there now."""
        try:
            return os.read(self._descriptor, _PIECE)
        except BlockingIOError:
            return None


class InputPipe(_Pipe):
    """The writing end of stdin, and what has not fitted into it yet."""

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
        """Take ``data`` for writing; nothing at all means that the input ends. A closed pipe takes and forgets."""
        self._pending += data
        self._ends = self._ends or not data

    def push(self) -> bool:
        """Write what fits; True when everything given so far is written, or nobody reads it any more."""
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._descriptor, self._pending) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            self._pending, self._ends = b"", True
        return True
