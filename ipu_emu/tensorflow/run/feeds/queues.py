"""Queues: the elements that an outfeed keeps, all that replicas enqueue or the last, and the options of feeds.

n enqueues of shape X, r replicas      ALL            LAST
r = 1                                  [n, X]         X
r > 1                                  [n, r, X]      [r, X]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import FeedError

_DEFAULT_DEPTH = 3
_DEPTH_LIMIT = 256


class OutfeedMode(Enum):
    """Which elements an outfeed keeps."""

    ALL = "all"
    LAST = "get_last"

    @classmethod
    def of(cls, mode: OutfeedMode | str | None) -> OutfeedMode:
        """Return a mode by itself or its value; any other string is the feed name of old programs: all."""
        if isinstance(mode, OutfeedMode):
            return mode
        return next((known for known in cls if known.value == mode), cls.ALL)


class OutfeedQueue:
    """A queue of the elements that replicas enqueue; one thread may put while another takes elements."""

    def __init__(
        self,
        outfeed_mode: OutfeedMode | str | None = None,
        device_ordinal: int | str | None = None,
        buffer_depth: int = _DEFAULT_DEPTH,
    ) -> None:
        check_buffer_depth(buffer_depth)
        self.mode = OutfeedMode.of(outfeed_mode)
        self.device_ordinal, self.buffer_depth = check_ordinal(device_ordinal), buffer_depth
        self._elements: deque[Sequence[NDArray[Any]]] = deque(maxlen=1 if self.mode is OutfeedMode.LAST else None)
        self._lock = Lock()

    @property
    def is_empty(self) -> bool:
        """Whether no element is waiting."""
        return not self._elements

    def put_rows(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Keep, without a copy, the arrays of several elements: [enqueues, ...], which must not change afterwards."""
        last = self.mode is OutfeedMode.LAST
        with self._lock:
            self._elements.append([array[-1:] for array in arrays] if last else arrays)

    def take(self) -> list[NDArray[Any]]:
        """Return the arrays of all elements since the last call (ALL; [] without any), or of the last one (LAST)."""
        with self._lock:
            enqueued = list(self._elements)
            if self.mode is OutfeedMode.ALL:
                self._elements.clear()
        if self.mode is OutfeedMode.LAST:
            if not enqueued:
                raise FeedError("The outfeed is empty; run the program that enqueues it first")
            return [np.array(array[0]) for array in enqueued[0]]
        columns = zip(*enqueued, strict=True)
        return [np.concatenate(parts) if len(parts) > 1 else np.ascontiguousarray(parts[0]) for parts in columns]


def check_ordinal(value: Any) -> int:
    """Return a device number; a string is the feed name of old programs, which is ignored."""
    if value is None or isinstance(value, str):
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("Device ordinal must be an integer")
    if value < 0:
        raise ValueError("Device ordinal must be >= 0")
    return value


def check_prefetch_depth(value: int | None) -> int:
    """Return a number of elements, by default 3; raise ValueError if it is not a valid prefetch depth."""
    value = _DEFAULT_DEPTH if value is None else value
    if not hasattr(type(value), "__index__"):
        raise ValueError(f"prefetch_depth must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError("prefetch_depth must be greater than zero")
    if value >= _DEPTH_LIMIT:
        raise ValueError(f"prefetch_depth must be less than {_DEPTH_LIMIT}")
    return value


def check_buffer_depth(value: int) -> None:
    """Raise ValueError for an invalid number of elements."""
    if not hasattr(type(value), "__index__"):
        raise ValueError(f"Outfeed buffer depth must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"Outfeed buffer depth cannot be less than 1, not {value}")
