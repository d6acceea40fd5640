"""held: a lock between processes on one machine, for work that one of them does and the others then find done."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

__all__ = ["held"]


@contextmanager
def held(path: Path, patience: float) -> Iterator[None]:
    """Hold the lock file ``path``; go on without it where files cannot be made, or after ``patience`` seconds.

    It serves to save work, so going on without it is right: the holder may hang. A holder that dies lets go of it.
    """
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    deadline = monotonic() + patience
    try:
        while monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                sleep(0.02)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # a process forked meanwhile has the file too: closing would not do
        os.close(file)
