"""Address space: a limit of what this process may map, reckoned from what it has mapped already."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["at_most"]


@contextmanager
def at_most(more: int) -> Iterator[None]:
    """Let this process map so many bytes more than it has mapped already, and no others: MemoryError then."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
