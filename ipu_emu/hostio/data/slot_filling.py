"""Filling: how samples get into slots, from sources with an index and from streams.

A slot holds one step, or, where steps are small and nothing is done to the samples but copying, a burst of steps:
handing over costs some microseconds however little is in a slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.preparation import PerField, Preparation
from ipu_emu.hostio.data.sample_order import Order, keys_of
from ipu_emu.hostio.data.sources import Arrays, Indexed, Stream

__all__ = ["Filling", "IndexedFilling", "StreamFilling"]

_MOST_STEPS = 64
_SMALL_BYTES = 1 << 16


class Filling(Protocol):
    """Workers call ``draw`` one after the other, in the order of the slots, and ``fill`` side by side."""

    #: Steps in a slot, at most.
    burst: int
    #: Steps of the first slot that an earlier run has used.
    used: int
    #: What to say of samples that are left when the data end.
    ending: str

    @property
    def threads_only(self) -> str:
        """Why forked processes cannot fill; empty if they can."""

    def steps_in(self, number: int) -> int:
        """Steps in slot ``number``."""

    def draw(self, number: int) -> Any:
        """What is needed to fill slot ``number``; None if the data end before it."""

    def views(self, drawn: Any) -> list[NDArray[Any]] | None:
        """The samples where they are, if they need no preparation and lie side by side."""

    def fill(self, drawn: Any, out: Sequence[NDArray[Any]]) -> None:
        """Write the samples into the arrays of a slot."""


class IndexedFilling:
    """Samples are looked up, so every worker knows alone what belongs to its slot."""

    ending = threads_only = ""

    def __init__(
        self, source: Arrays | Indexed, preparation: Preparation, order: Order, epochs: int | None, start: int
    ) -> None:
        self.order = order
        self._source, self._preparation, self._epochs = source, preparation, epochs
        self.burst = self._sensible_burst()
        self._slots = -(-order.steps // self.burst)
        epoch, step = divmod(start, order.steps)
        self._first = epoch * self._slots + step // self.burst
        self.used = step % self.burst

    def _sensible_burst(self) -> int:
        if not self.copies:
            return 1
        size = self.order.shape.samples(self.order.share.local) * sum(f.nbytes for f in self._preparation.fields)
        return max(1, min(_MOST_STEPS, _SMALL_BYTES // max(size, 1), self.order.steps))

    @property
    def copies(self) -> bool:
        """Whether the samples are rows of arrays, and stay as they are."""
        return (
            isinstance(self._source, Arrays) and isinstance(self._preparation, PerField) and self._preparation.copies
        )

    def steps_in(self, number: int) -> int:
        """A burst, or what is left of the epoch."""
        return min(self.burst, self.order.steps - (self._first + number) % self._slots * self.burst)

    def draw(self, number: int) -> tuple[int, int, int] | None:
        """Epoch, first step within it, number of steps."""
        epoch, slot = divmod(self._first + number, self._slots)
        ended = self._epochs is not None and epoch >= self._epochs
        return None if ended else (epoch, slot * self.burst, self.steps_in(number))

    def views(self, drawn: tuple[int, int, int]) -> list[NDArray[Any]] | None:
        """The samples where they are, if they need no preparation and lie side by side."""
        if not (self.copies and self.order.plain and isinstance(self._source, Arrays)):
            return None
        _, step, count = drawn
        return [array[self.order.span(step, count)] for array in self._source.arrays]

    def fill(self, drawn: tuple[int, int, int], out: Sequence[NDArray[Any]]) -> None:
        """Look up and prepare."""
        found = self.views(drawn)
        if found is not None:
            for slot, array in zip(out, found, strict=True):
                np.copyto(slot[: len(array)], array)
            return
        epoch, step, count = drawn
        rows = self.order.rows(epoch, step, count)
        keys = keys_of(self.order.seed, epoch, rows) if self._preparation.random else _no_keys(len(rows))
        if isinstance(self._source, Arrays) and isinstance(self._preparation, PerField):
            self._preparation.write_rows(self._source.arrays, rows, keys, [slot[: len(rows)] for slot in out])
            return
        for position, row in enumerate(rows.tolist()):
            try:
                self._preparation.write(self._source[row], keys[position : position + 1], out, position)
            except Exception as error:
                error.add_note(f"sample {row} of epoch {epoch}")
                raise


@dataclass
class StreamFilling:
    """Samples are read one after the other; those of other instances are read too, and left."""

    stream: Stream
    preparation: Preparation
    order: Order
    epochs: int | None
    #: What was read before the workers began, to know shapes and types.
    first: Iterator[Any]

    burst = 1
    used = 0
    ending = ""

    def __post_init__(self) -> None:
        self._epoch = self._read = 0
        self._wanted = self.order.own(np.arange(self.order.shape.samples(self.order.share.total))).tolist()

    def steps_in(self, number: int) -> int:
        """Streams are handed over step by step."""
        return 1

    def draw(self, number: int) -> tuple[int, int, list[Any]] | None:
        """Epoch, number of the first sample, and the samples of the step; a step that is not whole is left out."""
        whole = self.order.shape.samples(self.order.share.total)
        while True:
            samples = list(islice(self.first, whole))
            if len(samples) == whole:
                begin, self._read = self._read, self._read + whole
                return self._epoch, begin, [samples[place] for place in self._wanted]
            if not self._next_epoch():
                if samples:
                    self.ending = f"The source ended {len(samples)} samples into a step of {whole}; they are left out"
                return None

    @property
    def threads_only(self) -> str:
        """What the stream says."""
        return self.stream.threads_only

    def skip(self, steps: int) -> int:
        """Read past the steps of an earlier run; return how many there were."""
        return next((number for number in range(steps) if self.draw(number) is None), steps)

    def _next_epoch(self) -> bool:
        if self._epoch + 1 == self.epochs:
            return False
        if self.stream.once:
            raise FeedError(
                f"A generator can be read once, and epoch {self._epoch + 1} was asked for; give the feed the "
                "function that makes it"
            )
        if self._read == 0:
            raise FeedError(f"Epoch {self._epoch} of the source has no whole step of samples; give more samples")
        self.first, self._epoch, self._read = self.stream.make(), self._epoch + 1, 0
        return True

    def views(self, drawn: Any) -> None:
        """What a stream gives is always copied."""
        return

    def fill(self, drawn: tuple[int, int, list[Any]], out: Sequence[NDArray[Any]]) -> None:
        """Prepare what was read."""
        epoch, begin, samples = drawn
        rows = np.array(self._wanted) + begin
        keys = keys_of(self.order.seed, epoch, rows)
        for position, sample in enumerate(samples):
            try:
                self.preparation.write(sample, keys[position : position + 1], out, position)
            except Exception as error:
                error.add_note(f"sample {rows[position]} of epoch {epoch}")
                raise


def _no_keys(count: int) -> NDArray[np.uint64]:
    return np.broadcast_to(np.uint64(0), count)
