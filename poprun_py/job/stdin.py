"""Input: the launcher's stdin on its way to instance 0, one piece at a time."""

from __future__ import annotations

import os
import sys

__all__ = ["Input"]

_PIECE = 1 << 16


class Input:
    """Readable when the user has typed or piped something."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self.is_open = _may_read(descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bytes:
        """The next piece; empty at the end."""
        try:
            data = os.read(self._descriptor, _PIECE)
        except OSError:
            data = b""
        self.is_open = bool(data)
        return data


def _may_read(descriptor: int) -> bool:
    """Is there a stdin, and would reading not stop us as it stops a background job?"""
    if sys.stdin is None:
        return False
    try:
        return not os.isatty(descriptor) or os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
