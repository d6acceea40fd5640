"""Feed benchmarks: ``dataset_benchmark`` and ``infeed_benchmark`` measure how fast data is read, without a model.

The result is JSON: ``{"epochs": [{"elements_processed", "total_bytes_processed", "time_elapsed",
"elements_per_second", "bandwidth"}, ...]}``; time in wall seconds, bandwidth in GB/s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.hostio.data.sample_order import ReplicaRange
from ipu_emu.hostio.feeds.feed import Feed
from ipu_emu.tensorflow.run.feeds.queues import InfeedQueue


def dataset_benchmark(
    dataset: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_debug_options: bool = True,
    do_memcpy: bool = True,
) -> str:
    """Read ``elements_per_epochs`` elements in each epoch; ``do_memcpy`` copies each, as a transfer does."""
    check_epochs(number_of_epochs, elements_per_epochs)
    if dataset is None or isinstance(dataset, str | InfeedQueue):
        raise TypeError(
            f"Expected `dataset` to be arrays, a data set or an iterable, but got {type(dataset).__name__}"
        )
    with Feed(dataset, epochs=None, replica_range=ReplicaRange(), workers=1) as feed:
        return measured_epochs(feed.next_arrays, number_of_epochs, elements_per_epochs, print_stats, do_memcpy)


def infeed_benchmark(
    infeed_queue: InfeedQueue,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> str:
    """Measure an infeed queue, which is initialised first if necessary."""
    check_epochs(number_of_epochs, elements_per_epochs)
    if not isinstance(infeed_queue, InfeedQueue):
        raise TypeError(f"Expected `infeed_queue` to be an IPUInfeedQueue, but got {type(infeed_queue).__name__}")
    if not infeed_queue.initialized:
        infeed_queue.initializer()
    return measured_epochs(infeed_queue.next_arrays, number_of_epochs, elements_per_epochs, print_stats, do_memcpy)


def check_epochs(number_of_epochs: int, elements_per_epochs: int) -> None:
    """Raise ValueError unless both numbers are positive."""
    if number_of_epochs < 1:
        raise ValueError("Expected `number_of_epochs` to be at least 1.")
    if elements_per_epochs < 1:
        raise ValueError("Expected `elements_per_epochs` to be at least 1.")


def measured_epochs(
    take: Callable[[], list[NDArray[Any]]], epochs: int, elements: int, print_stats: bool, do_memcpy: bool
) -> str:
    """Call ``take`` for each element; return the measured rates as JSON."""
    measured = []
    for epoch in range(epochs):
        measured.append(_epoch(take, elements, do_memcpy))
        if print_stats:
            rate, bandwidth = measured[-1]["elements_per_second"], measured[-1]["bandwidth"]
            print(f"Epoch {epoch}: {rate:,.1f} elements/s, {bandwidth:.3f} GB/s", flush=True)
    return json.dumps({"epochs": measured})


def _epoch(take: Callable[[], list[NDArray[Any]]], elements: int, do_memcpy: bool) -> dict[str, float]:
    size, begin = 0, perf_counter()
    copies: list[NDArray[Any]] = []
    for _ in range(elements):
        arrays = take()
        size += sum(array.nbytes for array in arrays)
        copies = copies or [np.empty_like(array) for array in arrays]
        if do_memcpy:
            for copy, array in zip(copies, arrays, strict=True):
                np.copyto(copy, array)
    seconds = perf_counter() - begin
    return {
        "elements_processed": elements,
        "total_bytes_processed": size,
        "time_elapsed": seconds,
        "elements_per_second": elements / seconds,
        "bandwidth": size / seconds / 1e9,
    }
