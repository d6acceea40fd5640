"""Say: what the launcher tells its user outside a job, on stderr."""

from __future__ import annotations

import os
import sys

__all__ = ["say", "write"]


def say(line: str) -> None:
    """One line under the launcher's name."""
    write(os.fsencode(f"poprun-py: {line}\n"))


def write(data: bytes) -> None:
    """``data`` as it is, also where it is not UTF-8."""
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()
