"""Slot ring: a ring of slots in shared memory, between workers that fill it and one consumer.

Step n is in slot n mod S. Workers write straight into a slot and the consumer gets views of it; nothing is copied or
pickled in between. The memory is anonymous and the semaphores are unlinked when they are created, so nothing is left
behind, however a process ends.

    worker      wait for a free slot | take the next number n | fill slot n mod S | publish it
    consumer    wait for slot n mod S | use it, release slot n - 1 mod S
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

_ALIGNMENT = 64
_TEXT_BYTES = 4096


class SlotContent(IntEnum):
    """The kind of content of a slot."""

    DATA = 0
    END = 1
    ERROR = 2


@dataclass(frozen=True)
class WorkerStatus:
    """State of a worker: number of its step (-1: none), when that began, busy time and steps so far; nanoseconds."""

    number: int
    since: int
    busy: int
    done: int


class SlotRing:
    """``count`` slots of ``rows`` samples each, for ``workers`` threads or forked processes."""

    def __init__(self, fields: Sequence[Field], rows: int, *, count: int, workers: int) -> None:
        self.count = count
        offsets, size = _layout([rows * field.nbytes for field in fields])
        words = 2 + 2 * count + 4 * workers
        texts = _align(8 * words)
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
        # Plain integers in shared memory: number of the next step, whether to stop; per slot: content, bytes of text;
        # per worker: number, since when, busy nanoseconds, steps.
        view = memoryview(self._memory)
        numbers = view[: 8 * words].cast("q")
        self._next, self._slots, self._workers = numbers[:2], numbers[2 : 2 + 2 * count], numbers[2 + 2 * count :]
        self._texts = [view[texts + slot * _TEXT_BYTES :][:_TEXT_BYTES] for slot in range(count)]
        context = multiprocessing.get_context("fork")
        self._free, self._turn = context.Semaphore(count), context.Lock()
        self._ready = [context.Semaphore(0) for _ in range(count)]

    # Workers

    def wait_free(self, seconds: float) -> bool:
        """Claim a free slot; return False if none becomes free within ``seconds``."""
        return self._free.acquire(True, seconds)

    def lock(self, seconds: float) -> bool:
        """Enter the critical section that assigns numbers; return False if it is not free within ``seconds``."""
        return self._turn.acquire(True, seconds)

    def unlock(self) -> None:
        self._turn.release()

    def begin(self, worker: int) -> int:
        """Return the number of the next step, which this worker will fill; the lock must be held."""
        number = self._next[0]
        self._next[0] = number + 1
        at = 4 * worker
        self._workers[at + 1] = perf_counter_ns()
        self._workers[at] = number
        return number

    def publish(self, worker: int, content: SlotContent, text: str = "") -> None:
        """Hand the step that the worker began over to the consumer."""
        at = 4 * worker
        number = self._workers[at]
        slot = number % self.count
        self._slots[2 * slot] = content
        if content is not SlotContent.DATA:
            encoded = text.encode()[:_TEXT_BYTES]
            self._texts[slot][: len(encoded)] = encoded
            self._slots[2 * slot + 1] = len(encoded)
        self._workers[at + 2] += perf_counter_ns() - self._workers[at + 1]
        self._workers[at + 3] += 1
        self._workers[at] = -1
        self._ready[slot].release()

    @property
    def stopped(self) -> bool:
        """Whether workers should stop."""
        return bool(self._next[1])

    # The consumer

    def wait_ready(self, number: int, seconds: float) -> bool:
        """Wait for step ``number``; return False if it is not ready within ``seconds``."""
        return self._ready[number % self.count].acquire(seconds > 0, seconds)

    def is_ready(self, number: int) -> bool:
        """Whether the data of step ``number`` are ready."""
        return self._ready[number % self.count].get_value() > 0 and self.content(number)[0] is SlotContent.DATA

    def content(self, number: int) -> tuple[SlotContent, str]:
        """Return what was published as step ``number``: its content, and the text of an error or an end."""
        slot = number % self.count
        content = SlotContent(self._slots[2 * slot])
        if content is SlotContent.DATA:
            return content, ""
        return content, bytes(self._texts[slot][: self._slots[2 * slot + 1]]).decode(errors="replace")

    def release(self) -> None:
        """Let workers fill the oldest slot that the consumer holds."""
        self._free.release()

    def stop(self, workers: int) -> None:
        """Ask all workers to stop, including those that wait for a slot."""
        self._next[1] = 1
        for _ in range(workers):
            self._free.release()

    def status(self, worker: int) -> WorkerStatus:
        """Return the state of a worker."""
        return WorkerStatus(*self._workers[4 * worker : 4 * worker + 4])


def _layout(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return aligned offsets of the arrays, and their total size."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += _align(size)
    return offsets, end


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
