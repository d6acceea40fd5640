"""Occupancy: which IPUs of the emulated system are taken, and by whom.

As a Pod belongs to its host, the emulated one belongs to the process: two device managers see the same IPUs. Whoever
holds some gives them back by saying so, or by being forgotten.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from functools import cache
from threading import Lock
from weakref import WeakKeyDictionary

__all__ = ["Occupancy", "of_this_process"]


class Occupancy:
    """IPUs by holder."""

    def __init__(self) -> None:
        self._held: WeakKeyDictionary[object, frozenset[int]] = WeakKeyDictionary()
        self._lock = Lock()

    def take(self, holder: object, ipus: Iterable[int]) -> bool:
        """Give ``ipus`` to ``holder`` if nobody else has any of them; say whether that went well."""
        wanted = frozenset(ipus)
        if not self._try(holder, wanted):
            gc.collect()  # sessions that nobody knows any more may still hold devices
            return self._try(holder, wanted)
        return True

    def _try(self, holder: object, wanted: frozenset[int]) -> bool:
        with self._lock:
            if any(wanted & held for other, held in self._held.items() if other is not holder):
                return False
            self._held[holder] = wanted
            return True

    def release(self, holder: object) -> None:
        """Take back what ``holder`` has, if anything."""
        with self._lock:
            self._held.pop(holder, None)

    def is_free(self, ipus: Iterable[int]) -> bool:
        """Say whether nobody has any of ``ipus``."""
        with self._lock:
            return not any(held.intersection(ipus) for held in self._held.values())


@cache
def of_this_process() -> Occupancy:
    """The one of the Pod that this process sees."""
    return Occupancy()
