"""Benchmarks of data sets: how many elements per second they give, without a program."""

from __future__ import annotations

from typing import Any

from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import dtypes, ops

from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.api.ipu_infeed_queue import IPUInfeedQueue
from ipu_emu.tensorflow.run.feeds.feed_benchmark import check_epochs, measured_epochs
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
    check_epochs(number_of_epochs, elements_per_epochs)
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
    check_epochs(number_of_epochs, elements_per_epochs)

    def measure(*serialised: Any) -> Any:
        if serialised:
            infeed_queue._restart(serialised[0])
        else:
            infeed_queue._start(infeed_queue._dataset)
        try:
            rates = measured_epochs(
                infeed_queue.next_element, number_of_epochs, elements_per_epochs, print_stats, do_memcpy
            )
        finally:
            infeed_queue.stop()
        return rates.encode()

    if context.executing_eagerly():
        return ops.convert_to_tensor(measure())
    return host_call(measure, [infeed_queue._variant], dtypes.string, "infeed_benchmark")
