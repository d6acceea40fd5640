"""Threads: runs ranks as threads of the test process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gcl import Communicator, GclError, connect_threads

__all__ = ["errors_of", "on_ranks", "on_threads"]


def on_threads(counts: tuple[int, ...], work: Callable[[Communicator], Any], **options: Any) -> list[Any]:
    """Run ``work(communicator)`` on the ranks of a new communicator, a thread each; return their results."""
    options.setdefault("timeout", 200.0)
    return on_ranks(connect_threads(counts, segment_bytes=1 << 28, **options), work)


def on_ranks(communicators: list[Communicator], work: Callable[[Communicator], Any]) -> list[Any]:
    """The same on existing ranks; raise the error of the first failing rank."""
    with ThreadPoolExecutor(len(communicators)) as pool:
        return list(pool.map(work, communicators))


def errors_of(
    counts: tuple[int, ...],
    work: Callable[[Communicator], Any],
    *,
    timeout: float = 200.0,
    **options: Any,
) -> list[GclError | None]:
    """The error of gcl with which ``work`` ended on each rank, None without one."""

    def attempt(communicator: Communicator) -> GclError | None:
        try:
            work(communicator)
        except GclError as error:
            return error
        return None

    return on_threads(counts, attempt, timeout=timeout, **options)
