"""File lock: a lock between processes of one host, so that only one of them does work that all need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_POLL_SECONDS = 0.02


@contextmanager
def held(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock file ``path``; continue without it where it cannot be made, or after ``timeout`` seconds.

    The lock only avoids duplicate work, so it is correct to continue without it, as when its holder hangs. The kernel
    releases the lock of a process that dies.
    """
    from filelock import FileLock  # 30 ms, needed only to compile

    lock = FileLock(
        path, timeout, mode=0o600, poll_interval=_POLL_SECONDS, thread_local=False, fallback_to_soft=False
    )
    with suppress(OSError):  # includes a time-out
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
