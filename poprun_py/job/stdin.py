"""Stdin: the launcher's stdin, which is passed on to instance 0."""

from __future__ import annotations

import os
import sys

_PIECE = 1 << 16


class StdinReader:
    """Reads stdin piece by piece; ``is_open`` until its end, ``has_read`` after the first piece."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self.is_open = _may_read(descriptor)
        self.has_read = False

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bytes:
        """Return the next piece; empty at the end."""
        try:
            data = os.read(self._descriptor, _PIECE)
        except OSError:
            data = b""
        self.is_open = bool(data)
        self.has_read = self.has_read or self.is_open
        return data


def _may_read(descriptor: int) -> bool:
    """Whether there is a stdin, and reading it does not stop this process, as it stops a shell's background job."""
    if sys.stdin is None:
        return False
    try:
        return not os.isatty(descriptor) or os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
