"""Source opening: determines source type, first sample, shapes and types of a feed before its workers start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.preparation import SamplePreparation, preparation_of
from ipu_emu.hostio.data.sample_order import SampleOrder, keys_of
from ipu_emu.hostio.data.slot_fillers import IndexedFiller, SlotFiller, StreamFiller
from ipu_emu.hostio.data.sources import ArraySource, IndexedSource, StreamSource, source_of
from ipu_emu.hostio.workers.worker_pool import cause_of

T = TypeVar("T")
_FIRST_ROW = np.zeros(1, np.int64)


def open_source(
    data: Any, prepare: Any, order: SampleOrder, *, epochs: int | None, start: int, timeout: float
) -> tuple[SlotFiller, SamplePreparation]:
    """Read and prepare the first sample of ``data`` within ``timeout`` seconds; set the size of ``order``."""
    source = _within(timeout, "the source", lambda: source_of(data))
    if isinstance(source, StreamSource):
        return _open_stream(source, prepare, order, epochs, start, timeout)
    return _open_indexed(source, prepare, order, epochs, start, timeout)


def _open_stream(
    source: StreamSource, prepare: Any, order: SampleOrder, epochs: int | None, start: int, timeout: float
) -> tuple[SlotFiller, SamplePreparation]:
    if order.shuffle:
        raise FeedError(
            "shuffle=True needs a source with length and index, but this one is a stream: shuffle in the stream, "
            "or give arrays, files or an indexed data set"
        )
    samples = _within(timeout, "the source", source.make)
    first = _within(timeout, "the source", lambda: list(islice(samples, 1)))
    if not first:
        raise FeedError("The source has no samples; give a source that has some")
    preparation = _prepared(prepare, first[0], order.seed, timeout)
    filler = StreamFiller(source, preparation, order, epochs, chain(first, samples))
    _check_start(start, _within(timeout, "the source", lambda: filler.skip(start)))
    return filler, preparation


def _open_indexed(
    source: ArraySource | IndexedSource,
    prepare: Any,
    order: SampleOrder,
    epochs: int | None,
    start: int,
    timeout: float,
) -> tuple[SlotFiller, SamplePreparation]:
    order.size = len(source)
    if order.steps == 0:
        raise FeedError(
            f"A step of all replicas needs {order.shape.samples(order.replica_range.total)} samples, but the source "
            f"has {order.size}; use a smaller micro-batch or fewer batches per step, or give more samples"
        )
    if epochs is not None:
        _check_start(start, order.steps * epochs)
    first = _within(timeout, "the source", lambda: source[0])
    preparation = _prepared(prepare, first, order.seed, timeout)
    filler = IndexedFiller(source, preparation, order, epochs, start)
    return filler, preparation


def _check_start(start: int, steps: int) -> None:
    if start > steps:
        raise FeedError(
            f"start={start} is after the end of the data, which has {steps} steps; start at the position of a "
            "feed of the same data, or give more epochs"
        )


def _prepared(prepare: Any, sample: Any, seed: int, timeout: float) -> SamplePreparation:
    key = keys_of(seed, 0, _FIRST_ROW)
    return _within(timeout, "the preparation", lambda: preparation_of(prepare, sample, key))


def _within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """Return the result of user code, which may fail or block forever."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="hostio-first", daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    if not errors:
        raise FeedError(
            f"No first sample arrived from {what} within {seconds:g} s; check what blocks there, or give the feed a "
            "longer timeout"
        )
    if isinstance(errors[0], FeedError):
        raise errors[0]
    raise FeedError(f"The first sample failed in {what}: {cause_of(errors[0])}") from errors[0]
