"""Opening: what a feed finds out before its workers begin: the kind of source, the first sample, shapes and types."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.preparation import Preparation, preparation_of
from ipu_emu.hostio.data.sample_order import Order, keys_of
from ipu_emu.hostio.data.slot_filling import Filling, IndexedFilling, StreamFilling
from ipu_emu.hostio.data.sources import Arrays, Indexed, Stream, source_of
from ipu_emu.hostio.workers.worker_pool import cause_of

__all__ = ["open_source"]

T = TypeVar("T")
_FIRST = np.zeros(1, np.int64)


def open_source(
    data: Any, prepare: Any, order: Order, *, epochs: int | None, start: int, timeout: float
) -> tuple[Filling, Preparation]:
    """Ask ``data`` for its first sample, within ``timeout`` seconds, and prepare that; ``order`` learns the size."""
    source = _within(timeout, "the source", lambda: source_of(data))
    if isinstance(source, Stream):
        return _open_stream(source, prepare, order, epochs, start, timeout)
    return _open_indexed(source, prepare, order, epochs, start, timeout)


def _open_stream(
    source: Stream, prepare: Any, order: Order, epochs: int | None, start: int, timeout: float
) -> tuple[Filling, Preparation]:
    if order.shuffle:
        raise FeedError(
            "shuffle=True needs a source with length and index; this one is read one by one: shuffle it there, or "
            "give arrays, files or a data set"
        )
    samples = _within(timeout, "the source", source.make)
    first = _within(timeout, "the source", lambda: list(_some(samples)))
    if not first:
        raise FeedError("The source has no sample; found its end at once")
    preparation = _prepared(prepare, first[0], order.seed, timeout)
    filling = StreamFilling(source, preparation, order, epochs, chain(first, samples))
    _check_start(start, _within(timeout, "the source", lambda: filling.skip(start)))
    return filling, preparation


def _some(samples: Any) -> Any:
    for sample in samples:
        yield sample
        return


def _open_indexed(
    source: Arrays | Indexed, prepare: Any, order: Order, epochs: int | None, start: int, timeout: float
) -> tuple[Filling, Preparation]:
    order.size = len(source)
    if order.steps == 0:
        raise FeedError(
            f"A step takes {order.shape.samples(order.share.total)} samples of all replicas, the source has "
            f"{order.size}; use a smaller micro-batch or fewer batches per step, or give more samples"
        )
    if epochs is not None:
        _check_start(start, order.steps * epochs)
    first = _within(timeout, "the source", lambda: source[0])
    preparation = _prepared(prepare, first, order.seed, timeout)
    filling = IndexedFilling(source, preparation, order, epochs, start)
    return filling, preparation


def _check_start(start: int, steps: int) -> None:
    if start > steps:
        raise FeedError(
            f"start={start} lies behind the end of the data, which have {steps} steps; start at the position of a "
            "feed of the same data, or give more epochs"
        )


def _prepared(prepare: Any, sample: Any, seed: int, timeout: float) -> Preparation:
    key = keys_of(seed, 0, _FIRST)
    return _within(timeout, "the preparation", lambda: preparation_of(prepare, sample, key))


def _within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """The result of the user's code, which may fail or block for ever."""
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
            f"No first sample came from {what} within {seconds:g} s; look for what blocks there, or give the feed a "
            "longer timeout"
        )
    if isinstance(errors[0], FeedError):
        raise errors[0]
    raise FeedError(f"The first sample failed in {what}: {cause_of(errors[0])}") from errors[0]
