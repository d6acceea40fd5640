"""Data set elements: the arrays of the elements of a data set of ``tf.data``, for a prefetch queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray
from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.ops import gen_dataset_ops

from gcl.kernels.uninterrupted import uninterrupted
from ipu_emu.tensorflow.run.feeds.prefetch_queue import ElementStream

__all__ = ["arrays_of", "stream_of"]


def stream_of(dataset: Any) -> ElementStream:
    """The elements of a data set, or the remaining ones of an iterator."""
    return ElementStream(lambda: _elements(dataset))


def _elements(dataset: Any) -> Iterator[list[NDArray[Any]]]:
    """Yield elements; runs in a separate thread, which it sets to eager mode."""
    with ops.init_scope(), context.eager_mode(), ops.device("CPU:0"):
        iterator = iter(dataset)
        while True:
            try:
                element = arrays_of(iterator)
            except errors.OutOfRangeError:
                return
            yield element


def arrays_of(iterator: Any) -> list[NDArray[Any]]:
    """The arrays of the next element of an iterator in eager mode, which share the memory of TensorFlow's tensors.

    It calls the iterator's op, as the iterator itself takes five times as long. OutOfRangeError marks the end.
    """
    with uninterrupted():
        found = gen_dataset_ops.iterator_get_next(
            iterator._iterator_resource, iterator._flat_output_types, iterator._flat_output_shapes
        )
        return [tensor._numpy() for tensor in found]
