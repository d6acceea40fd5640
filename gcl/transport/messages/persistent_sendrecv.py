"""Swap: one exchange in which every party sends what it calls and its data together, prepared once, run often.

    header    signature of the call, bytes that follow        to everyone; at once followed by
    data      for that party                                  which forgets it if signatures differ

Compiled code does all but the waiting for what is late. A swap keeps addresses of tensors only: it keeps none alive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gcl.core.prepared_call import DONE, MISMATCH, WAITING
from gcl.core.request import Request
from gcl.kernels.jit import bare, bare_part
from gcl.transport.tcp.parallel_connections import FILL, SEND, advance, move, queue

__all__ = ["Data", "Swap"]

_IDLE, _HEADERS, _DATA = range(3)  # stages
_STAGE, _SIGNATURE = 0, 1
_HEADER_BYTES = 16


@dataclass
class Data:
    """What a swap carries: (party, array) to send and to fill; what to do before and after.

    Collectives tell it what they would tell a ``MessageChannel``. ``kept`` is memory that lives with the swap.
    """

    sends: list[tuple[int, np.ndarray]] = field(default_factory=list)
    fills: list[tuple[int, np.ndarray]] = field(default_factory=list)
    before: list[Callable[[], object]] = field(default_factory=list)
    after: list[Callable[[], object]] = field(default_factory=list)
    kept: list[np.ndarray] = field(default_factory=list)

    def send(self, party: int, data: np.ndarray) -> None:
        """Send ``data`` once everything ``before`` is done."""
        self.sends.append((party, data))

    lend = send

    def receive(self, party: int, data: np.ndarray) -> None:
        """Fill ``data``."""
        self.fills.append((party, data))

    def wait(self, request: Request, pending: list[Any]) -> None:
        """All has come when what is ``after`` is done."""

    def first(self, step: Callable[[], object]) -> None:
        """Do ``step`` before all sends."""
        self.before.append(step)

    def then(self, step: Callable[[], object]) -> None:
        """Do ``step`` when all has come."""
        self.after.append(step)

    def take(self, count: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Memory for ``count`` elements."""
        self.kept.append(np.empty(count, dtype))
        return self.kept[-1]


class Swap:
    """Run it until it is not WAITING; ``places[party]`` is the line of the party's connection."""

    def __init__(self, signature: int, data: Data, places: dict[int, int]) -> None:
        self._before, self._after, self._kept = data.before, data.after, data.kept
        self._sends, self._fills = (_segments(arrays, places) for arrays in (data.sends, data.fills))
        self.words = np.array([_IDLE, signature], np.int64)
        #: what everyone calls, and how many bytes of data come with it: [to, from][peers]
        self.headers = np.zeros((2, len(places), 2), np.int64)
        self.headers[0, :, 0] = signature
        np.add.at(self.headers[0, :, 1], self._sends[:, 0], self._sends[:, 2])
        self.targets = np.zeros((len(places), 2), np.int64)

    def announce(self, signature: int) -> None:
        """The call is known to all by this number from now on."""
        self.words[_SIGNATURE] = signature
        self.headers[0, :, 0] = signature

    @property
    def segments(self) -> int:
        """The most that a queue must hold."""
        return 1 + max(len(self._sends), len(self._fills))

    def run(self, table: np.ndarray, polled: np.ndarray) -> int:
        """Begin, or go on; DONE, WAITING or MISMATCH."""
        if self.words[_STAGE] == _IDLE:
            for prepare in self._before:
                prepare()
        status = _swap(table, polled, self.words, self.headers, self._sends, self._fills, self.targets)
        if status == DONE:
            for finish in self._after:
                finish()
        return int(status)


def _segments(arrays: list[tuple[int, np.ndarray]], places: dict[int, int]) -> np.ndarray:
    """(place, address, bytes) of what is not empty, in the order of places."""
    rows = [
        (places[party], array.__array_interface__["data"][0], array.nbytes) for party, array in arrays if array.nbytes
    ]
    return np.array(sorted(rows, key=lambda row: row[0]), np.int64).reshape(-1, 3)


@bare_part
def _begin(table: Any, headers: Any, sends: Any, targets: Any) -> None:
    row = 0
    for peer in range(len(table)):
        line = table[peer]
        # what is sent may have to wait until the others, who wait for headers, have taken some
        targets[peer, 0] = 0
        targets[peer, 1] = queue(line, FILL, headers[1, peer].ctypes.data, _HEADER_BYTES, 0)
        queue(line, SEND, headers[0, peer].ctypes.data, _HEADER_BYTES, 0)
        while row < len(sends) and sends[row, 0] == peer:
            queue(line, SEND, sends[row, 1], sends[row, 2], 0)
            row += 1
        while advance(line):
            pass


@bare
def _swap(table: Any, polled: Any, words: Any, headers: Any, sends: Any, fills: Any, targets: Any) -> Any:
    """Go through the stages as far as it goes; ``sends`` are in the order of their connections."""
    if words[_STAGE] == _IDLE:
        _begin(table, headers, sends, targets)
        words[_STAGE] = _HEADERS
    if words[_STAGE] == _HEADERS:
        if not move(table, targets, polled):
            return WAITING
        for peer in range(len(table)):
            if headers[1, peer, 0] != words[_SIGNATURE]:
                return MISMATCH
        for row in range(len(fills)):
            queue(table[fills[row, 0]], FILL, fills[row, 1], fills[row, 2], 0)
        for peer in range(len(table)):
            targets[peer, 0], targets[peer, 1] = table[peer, SEND + 1], table[peer, FILL + 1]
        words[_STAGE] = _DATA
    if not move(table, targets, polled):
        return WAITING
    words[_STAGE] = _IDLE
    return DONE
