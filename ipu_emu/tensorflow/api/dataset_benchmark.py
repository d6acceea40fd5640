"""Benchmarks of data sets: how many elements per second they give, without a program.

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
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import dtypes, ops

from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.api.ipu_infeed_queue import IPUInfeedQueue
from ipu_emu.tensorflow.run.host_calls import host_call

__all__ = ["dataset_benchmark", "infeed_benchmark"]


@without_effect("apply_debug_options")
def dataset_benchmark(
    dataset: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    apply_debug_options: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """Measure a data set; return JSON, in graph mode as a tensor."""
    if not isinstance(dataset, dataset_ops.DatasetV2 | dataset_ops.DatasetV1):
        raise TypeError(f"Expected `dataset` to be a tf.data.Dataset, but got {type(dataset).__name__}.")
    _check_epochs(number_of_epochs, elements_per_epochs)
    return infeed_benchmark(IPUInfeedQueue(dataset), number_of_epochs, elements_per_epochs, print_stats, do_memcpy)


def infeed_benchmark(
    infeed_queue: Any,
    number_of_epochs: int,
    elements_per_epochs: int,
    print_stats: bool = True,
    do_memcpy: bool = True,
) -> Any:
    """Measure the data set of an infeed; return JSON, in graph mode as a tensor."""
    if not isinstance(infeed_queue, IPUInfeedQueue):
        raise TypeError(f"Expected `infeed_queue` to be an IPUInfeedQueue, but got {type(infeed_queue).__name__}.")
    _check_epochs(number_of_epochs, elements_per_epochs)

    def measure(*serialised: Any) -> Any:
        if serialised:
            infeed_queue._restart(serialised[0])
        else:
            infeed_queue._start(infeed_queue._dataset)
        try:
            rates = _measured_epochs(
                infeed_queue.next_element, number_of_epochs, elements_per_epochs, print_stats, do_memcpy
            )
        finally:
            infeed_queue.stop()
        return rates.encode()

    if context.executing_eagerly():
        return ops.convert_to_tensor(measure())
    return host_call(measure, [infeed_queue._variant], dtypes.string, "infeed_benchmark")


def _check_epochs(number_of_epochs: int, elements_per_epochs: int) -> None:
    """Raise ValueError unless both numbers are positive."""
    if number_of_epochs < 1:
        raise ValueError("Expected `number_of_epochs` to be at least 1.")
    if elements_per_epochs < 1:
        raise ValueError("Expected `elements_per_epochs` to be at least 1.")


def _measured_epochs(
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
