"""File lock: a lock between processes of one host, for work that one of them does and the others then find done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["held"]

_POLL_SECONDS = 0.02


@contextmanager
def held(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock file ``path``; continue without it where it cannot be made, or after ``timeout`` seconds.

    The lock only saves work, so continuing without it is right: its holder may hang. The kernel releases the lock of
    a process that dies.
    """
    from filelock import FileLock  # only those who compile need it: 30 ms

    lock = FileLock(
        path, timeout, mode=0o600, poll_interval=_POLL_SECONDS, thread_local=False, fallback_to_soft=False
    )
    with suppress(OSError):  # a time-out is one, too
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
