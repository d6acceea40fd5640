"""Collection: work that makes many objects which stay, done without Python's cyclic garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collection"]


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep the collector off: it would look through the objects of all imported modules several times.

    Starting BERT-base from a cached executable took 1.6 s with it, of which 0.7 s were its own.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
