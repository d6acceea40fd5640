"""Slot fillers: write samples into slots, from indexed sources and from streams.

A slot holds one step, or a burst of steps if steps are small and samples are only copied: passing a slot to the
consumer takes a few microseconds, whatever its size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.preparation import FieldTransforms, SamplePreparation
from ipu_emu.hostio.data.sample_order import SampleOrder, keys_of
from ipu_emu.hostio.data.sources import ArraySource, IndexedSource, StreamSource

_MAX_BURST_STEPS = 64
_MAX_BURST_BYTES = 1 << 16


class SlotFiller(Protocol):
    """Protocol of a filler: workers call ``draw`` one at a time, in slot order, and ``fill`` in parallel."""

    #: Maximum number of steps in a slot.
    burst: int
    #: Number of steps of the first slot that an earlier run has consumed.
    used: int
    #: The warning for samples that are left over when the data end.
    ending: str

    @property
    def threads_only(self) -> str:
        """Why forked processes cannot fill slots; empty if they can."""

    def steps_in(self, number: int) -> int:
        """Return the number of steps in slot ``number``."""

    def draw(self, number: int) -> Any:
        """Return what ``fill`` needs for slot ``number``; None if the data end before it."""

    def views(self, drawn: Any) -> list[NDArray[Any]] | None:
        """Return views of the samples if they are contiguous in the source and need no preparation; else None."""

    def fill(self, drawn: Any, out: Sequence[NDArray[Any]]) -> None:
        """Write the samples into the arrays of a slot."""


class IndexedFiller:
    """Fills slots by index: every worker can determine the samples of its slot by itself."""

    ending = threads_only = ""

    def __init__(
        self,
        source: ArraySource | IndexedSource,
        preparation: SamplePreparation,
        order: SampleOrder,
        epochs: int | None,
        start: int,
    ) -> None:
        self.order = order
        self._source, self._preparation, self._epochs = source, preparation, epochs
        self.burst = self._burst_steps()
        self._slots = -(-order.steps // self.burst)
        epoch, step = divmod(start, order.steps)
        self._first = epoch * self._slots + step // self.burst
        self.used = step % self.burst

    def _burst_steps(self) -> int:
        if not self.copies:
            return 1
        size = self.order.shape.samples(self.order.replica_range.local) * sum(
            f.nbytes for f in self._preparation.fields
        )
        return max(1, min(_MAX_BURST_STEPS, _MAX_BURST_BYTES // max(size, 1), self.order.steps))

    @property
    def copies(self) -> bool:
        """Whether samples are rows of arrays that are copied unchanged."""
        return (
            isinstance(self._source, ArraySource)
            and isinstance(self._preparation, FieldTransforms)
            and self._preparation.copies
        )

    def steps_in(self, number: int) -> int:
        """Return the length of a burst, or the number of steps left in the epoch."""
        return min(self.burst, self.order.steps - (self._first + number) % self._slots * self.burst)

    def draw(self, number: int) -> tuple[int, int, int] | None:
        """Return epoch, first step within it, and number of steps."""
        epoch, slot = divmod(self._first + number, self._slots)
        ended = self._epochs is not None and epoch >= self._epochs
        return None if ended else (epoch, slot * self.burst, self.steps_in(number))

    def views(self, drawn: tuple[int, int, int]) -> list[NDArray[Any]] | None:
        """Return views of the samples if they are contiguous in the source and need no preparation; else None."""
        if not (self.copies and self.order.contiguous and isinstance(self._source, ArraySource)):
            return None
        _, step, count = drawn
        return [array[self.order.span(step, count)] for array in self._source.arrays]

    def fill(self, drawn: tuple[int, int, int], out: Sequence[NDArray[Any]]) -> None:
        """Look up and prepare the samples."""
        views = self.views(drawn)
        if views is not None:
            for slot, array in zip(out, views, strict=True):
                np.copyto(slot[: len(array)], array)
            return
        epoch, step, count = drawn
        rows = self.order.rows(epoch, step, count)
        keys = keys_of(self.order.seed, epoch, rows) if self._preparation.random else _no_keys(len(rows))
        if isinstance(self._source, ArraySource) and isinstance(self._preparation, FieldTransforms):
            self._preparation.write_rows(self._source.arrays, rows, keys, [slot[: len(rows)] for slot in out])
            return
        for position, row in enumerate(rows.tolist()):
            try:
                self._preparation.write(self._source[row], keys[position : position + 1], out, position)
            except Exception as error:
                error.add_note(f"sample {row} of epoch {epoch}")
                raise


@dataclass
class StreamFiller:
    """Fills slots from a stream; the samples of other instances are read too, and skipped."""

    stream: StreamSource
    preparation: SamplePreparation
    order: SampleOrder
    epochs: int | None
    #: The stream, with the sample that was read before the workers started, to learn shapes and types.
    first: Iterator[Any]

    burst = 1
    used = 0
    ending = ""

    def __post_init__(self) -> None:
        self._epoch = self._read = 0
        self._own_samples = self.order.own(
            np.arange(self.order.shape.samples(self.order.replica_range.total))
        ).tolist()

    def steps_in(self, number: int) -> int:
        """Return 1: each slot of a stream holds one step."""
        return 1

    def draw(self, number: int) -> tuple[int, int, list[Any]] | None:
        """Return epoch, number of the first sample, and the samples of the step; an incomplete step is left out."""
        global_batch = self.order.shape.samples(self.order.replica_range.total)
        while True:
            samples = list(islice(self.first, global_batch))
            if len(samples) == global_batch:
                begin, self._read = self._read, self._read + global_batch
                return self._epoch, begin, [samples[position] for position in self._own_samples]
            if not self._next_epoch():
                if samples:
                    count = f"{len(samples)} of {global_batch}"
                    self.ending = f"The source ended after {count} samples of a step, which is left out"
                return None

    @property
    def threads_only(self) -> str:
        """Why forked processes cannot read the stream; empty if they can."""
        return self.stream.threads_only

    def skip(self, steps: int) -> int:
        """Skip the steps of an earlier run; return how many there were."""
        return next((number for number in range(steps) if self.draw(number) is None), steps)

    def _next_epoch(self) -> bool:
        if self._epoch + 1 == self.epochs:
            return False
        if self.stream.once:
            raise FeedError(
                f"A generator can be read only once, but epoch {self._epoch + 1} was requested; give the feed the "
                "function that makes the generator"
            )
        if self._read == 0:
            raise FeedError(
                f"Epoch {self._epoch} of the source has fewer samples than one step needs; give more samples"
            )
        self.first, self._epoch, self._read = self.stream.make(), self._epoch + 1, 0
        return True

    def views(self, drawn: Any) -> None:
        """Return None: samples of a stream are always copied."""
        return

    def fill(self, drawn: tuple[int, int, list[Any]], out: Sequence[NDArray[Any]]) -> None:
        """Prepare the samples that were read."""
        epoch, begin, samples = drawn
        rows = np.array(self._own_samples) + begin
        keys = keys_of(self.order.seed, epoch, rows)
        for position, sample in enumerate(samples):
            try:
                self.preparation.write(sample, keys[position : position + 1], out, position)
            except Exception as error:
                error.add_note(f"sample {rows[position]} of epoch {epoch}")
                raise


def _no_keys(count: int) -> NDArray[np.uint64]:
    return np.broadcast_to(np.uint64(0), count)
