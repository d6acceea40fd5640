"""Address space: limits the memory that this process may map, relative to what it has mapped already."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["at_most"]


@contextmanager
def at_most(more: int) -> Iterator[None]:
    """Limit this process to ``more`` bytes of additional address space; beyond that, MemoryError is raised."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
