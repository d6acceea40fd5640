"""Feeding: the step data of a run: elements of infeeds in, rows of outfeeds and results out.

Element j of an infeed belongs to local replica j mod r. Stages of a pipeline read the arrays of one element at
different times; unread arrays are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from ipu_emu.tensorflow.importer.values import on_device

#: Returns the arrays of the next element.
Next = Callable[[], Sequence[NDArray[Any]]]


class StopRequested(Exception):
    """Raised to end a run after Ctrl-C."""


class RunData:
    """The data of one run; ``infeeds`` has the ids of the arrays of each infeed, None for those that are not
    used; ``anchors`` has the rows of results, and ``written`` is called with the id of each row that arrives.
    """

    def __init__(
        self,
        infeeds: Sequence[tuple[Next, Sequence[str | None]]],
        anchors: Mapping[str, NDArray[Any]],
        stopped: Callable[[], bool],
        written: Callable[[str], None] | None = None,
    ) -> None:
        self._next = {id: infeed for infeed in infeeds for id in infeed[1] if id is not None}
        self._waiting: dict[str, deque[NDArray[Any]]] = {id: deque() for id in self._next}
        self._anchors, self._written = anchors, dict.fromkeys(anchors, 0)
        self._stopped, self._lock, self._told = stopped, Lock(), written

    def read(self, id: str) -> NDArray[Any]:
        """The next chunk of an input: the array of one replica."""
        if self._stopped():
            raise StopRequested
        waiting = self._waiting[id]
        with self._lock:
            if not waiting:
                pull, ids = self._next[id]
                for other, array in zip(ids, pull(), strict=False):
                    if other is not None:
                        self._waiting[other].append(on_device(array))
            return waiting.popleft()

    def write(self, id: str, value: NDArray[Any]) -> None:
        """Store the next chunk of an anchor."""
        if self._stopped():
            raise StopRequested
        rows = self._anchors[id]
        rows[self._written[id] % len(rows)] = value
        self._written[id] += 1
        if self._told is not None:
            self._told(id)
