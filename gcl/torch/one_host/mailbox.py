"""Mailbox: rings in shared memory in which each rank of a host announces its messages to every other rank.

    ring (source -> target)   written | read | slot 0 | slot 1 | ...
    bell of each rank         grows whenever another rank wrote something that it may wait for

A slot describes a message; its bytes are in the segment of the source, or in the memory of its process. When the
target has them, it sets the message's word in the segment of the source and rings its bell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gcl.kernels.atomics import fetch_add, futex_wait, futex_wake, load_acquire, store_release
from gcl.kernels.jit import bare
from gcl.transport.memory.segment import array_at
from gcl.transport.paths.memory_path import MemoryPath

_SLOTS = 16
_LINE = 128  # bytes: the written count, the read count and each bell have separate lines
_WORDS = 8  # int64 of a slot, which holds a letter
_RING = 2 * _LINE + _SLOTS * _WORDS * 8
_WORD = np.dtype(np.int64)


class Letter(NamedTuple):
    """The description of a message: the location of its ``nbytes``, and the word that marks their arrival."""

    tag: int
    nbytes: int
    offset: int  # in the segment of the source; -1: only at ``address`` in its ``process``
    address: int
    process: int
    word: int  # offset in the segment of the source


@bare
def _load(address: int) -> Any:
    return load_acquire(address)


@bare
def _store(address: int, value: int) -> None:
    store_release(address, np.int32(value))


@bare
def _ring_bell(address: int) -> None:
    fetch_add(address, np.int32(1))
    futex_wake(address)


@bare
def _doze(address: int, seen: int, timespec: Any) -> None:
    futex_wait(address, seen, timespec.ctypes.data)


class Mailbox:
    """The rings of rank ``path.rank`` to and from all others; made by all ranks together."""

    def __init__(self, path: MemoryPath) -> None:
        self._rank, self._ranks = path.rank, path.ranks
        nbytes = self._ranks * _LINE + self._ranks**2 * _RING
        self._memory = path.shared((nbytes,), np.dtype(np.uint8))
        self._base = self._memory.ctypes.data
        self._read = [0] * self._ranks
        self._written = [0] * self._ranks
        self._incoming = [self._address(source, self._rank) for source in range(self._ranks)]

    def write(self, target: int, letter: Letter) -> bool:
        """Announce a message to ``target``; False if its ring is full."""
        ring = self._address(self._rank, target)
        if self._written[target] - _load(ring + _LINE) >= _SLOTS:
            return False
        slot = ring + 2 * _LINE + self._written[target] % _SLOTS * _WORDS * 8
        array_at(slot, (len(letter),), _WORD)[...] = letter
        self._written[target] += 1
        _store(ring, self._written[target])
        self.ring(target)
        return True

    def read(self) -> Iterator[tuple[int, Letter]]:
        """The letters that other ranks have written since the last call: (source, letter)."""
        for source, ring in enumerate(self._incoming):
            written = _load(ring)
            while self._read[source] != written:
                slot = ring + 2 * _LINE + self._read[source] % _SLOTS * _WORDS * 8
                letter = Letter(*array_at(slot, (len(Letter._fields),), _WORD).tolist())
                self._read[source] += 1
                _store(ring + _LINE, self._read[source])
                if written - self._read[source] == _SLOTS - 1:  # it may have waited for room
                    self.ring(source)
                yield source, letter

    def ring(self, target: int) -> None:
        """Wake ``target``."""
        _ring_bell(self._base + target * _LINE)

    def heard(self) -> int:
        """The number of times that this rank's bell was rung."""
        return int(_load(self._base + self._rank * _LINE))

    def doze(self, heard: int, seconds: float) -> None:
        """Sleep until the bell has rung more than ``heard`` times, at most ``seconds`` (less than 1)."""
        timespec = np.array([0, int(seconds * 1e9)], np.int64)
        _doze(self._base + self._rank * _LINE, heard, timespec)

    def _address(self, source: int, target: int) -> int:
        return int(self._base) + self._ranks * _LINE + (source * self._ranks + target) * _RING
