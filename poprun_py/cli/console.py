"""Say: what the launcher tells its user outside a job, on stderr."""

from __future__ import annotations

import os
import sys

__all__ = ["say", "write"]


def say(line: str) -> None:
    """One line under the launcher's name; characters that would move the cursor are spelled out."""
    write(os.fsencode(f"poprun-py: {''.join(map(_shown, line))}\n"))


def _shown(letter: str) -> str:
    is_a_byte = "\udc80" <= letter <= "\udcff"  # of a word that is not UTF-8
    return letter if letter.isprintable() or is_a_byte else repr(letter)[1:-1]


def write(data: bytes) -> None:
    """``data`` as it is, also where it is not UTF-8."""
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()
