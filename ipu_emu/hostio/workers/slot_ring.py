"""Slots: a ring of prepared steps in shared memory, between workers that fill it and one consumer.

Step n lies in slot n mod S. Workers write straight into a slot, the consumer gets views of it; nothing is copied or
pickled in between. The memory is anonymous and the semaphores are unlinked as soon as they exist, so that nothing
can be left behind, however a process ends.

    worker      wait for a free slot | take the next number n | fill slot n mod S | announce it
    consumer    wait for slot n mod S | use it, give back slot n - 1 mod S
"""

from __future__ import annotations

import mmap
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.hostio.data.sample_structure import Field

__all__ = ["Kind", "Slots", "Status"]

_ALIGNMENT = 64
_TEXT_BYTES = 4096


class Kind(IntEnum):
    """What a slot holds."""

    DATA = 0
    END = 1
    ERROR = 2


@dataclass(frozen=True)
class Status:
    """What a worker is at: the number of its step, or -1; since when; nanoseconds and steps of work so far."""

    number: int
    since: int
    busy: int
    done: int


class Slots:
    """``count`` slots of ``rows`` samples each, for ``workers`` threads or forked processes."""

    def __init__(self, fields: Sequence[Field], rows: int, *, count: int, workers: int) -> None:
        self.count = count
        offsets, size = _layout([rows * field.nbytes for field in fields])
        words = 2 + 2 * count + 4 * workers
        texts = _up(8 * words)
        begin = texts + count * _TEXT_BYTES
        self.nbytes = begin + count * size
        self._memory = mmap.mmap(-1, self.nbytes)
        #: For each slot, the array of each field as [rows, *shape].
        self.arrays: list[list[NDArray[Any]]] = [
            [
                np.ndarray((rows, *field.shape), field.dtype, self._memory, begin + slot * size + offset)
                for field, offset in zip(fields, offsets, strict=True)
            ]
            for slot in range(count)
        ]
        # Plain integers in shared memory: number of the next step, whether to stop; by slot: kind, bytes of text; by
        # worker: number, since when, busy nanoseconds, steps.
        whole = memoryview(self._memory)
        numbers = whole[: 8 * words].cast("q")
        self._next, self._slots, self._workers = numbers[:2], numbers[2 : 2 + 2 * count], numbers[2 + 2 * count :]
        self._texts = [whole[texts + slot * _TEXT_BYTES :][:_TEXT_BYTES] for slot in range(count)]
        context = multiprocessing.get_context("fork")
        self._free, self._turn = context.Semaphore(count), context.Lock()
        self._ready = [context.Semaphore(0) for _ in range(count)]

    # Workers

    def wait_free(self, seconds: float) -> bool:
        """Claim one free slot; False if there is none for so long."""
        return self._free.acquire(True, seconds)

    def lock(self, seconds: float) -> bool:
        """Enter the section in which numbers are given out; False if somebody else stays in it for so long."""
        return self._turn.acquire(True, seconds)

    def unlock(self) -> None:
        self._turn.release()

    def begin(self, worker: int) -> int:
        """The number of the next step, which this worker fills; only with the lock held."""
        number = self._next[0]
        self._next[0] = number + 1
        at = 4 * worker
        self._workers[at + 1] = perf_counter_ns()
        self._workers[at] = number
        return number

    def announce(self, worker: int, kind: Kind, text: str = "") -> None:
        """Hand the step that the worker began to the consumer."""
        at = 4 * worker
        number = self._workers[at]
        slot = number % self.count
        self._slots[2 * slot] = kind
        if kind is not Kind.DATA:
            encoded = text.encode()[:_TEXT_BYTES]
            self._texts[slot][: len(encoded)] = encoded
            self._slots[2 * slot + 1] = len(encoded)
        self._workers[at + 2] += perf_counter_ns() - self._workers[at + 1]
        self._workers[at + 3] += 1
        self._workers[at] = -1
        self._ready[slot].release()

    @property
    def stopped(self) -> bool:
        """Whether workers should end."""
        return bool(self._next[1])

    # The consumer

    def wait_ready(self, number: int, seconds: float) -> bool:
        """Wait until step ``number`` is there; False if it is not for so long."""
        return self._ready[number % self.count].acquire(seconds > 0, seconds)

    def is_ready(self, number: int) -> bool:
        """Whether the data of step ``number`` are there."""
        return self._ready[number % self.count].get_value() > 0 and self.content(number)[0] is Kind.DATA

    def content(self, number: int) -> tuple[Kind, str]:
        """What was announced as step ``number``: its kind, and the text of an error or an end."""
        slot = number % self.count
        kind = Kind(self._slots[2 * slot])
        if kind is Kind.DATA:
            return kind, ""
        return kind, bytes(self._texts[slot][: self._slots[2 * slot + 1]]).decode(errors="replace")

    def give_back(self) -> None:
        """Let workers fill the oldest slot that the consumer has."""
        self._free.release()

    def stop(self, workers: int) -> None:
        """Ask threads to end, also those that wait for a slot."""
        self._next[1] = 1
        for _ in range(workers):
            self._free.release()

    def status(self, worker: int) -> Status:
        """What a worker is at."""
        return Status(*self._workers[4 * worker : 4 * worker + 4])


def _layout(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Offsets of arrays that are aligned, and the size of all."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += _up(size)
    return offsets, end


def _up(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
