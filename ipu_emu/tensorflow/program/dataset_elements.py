"""Data set elements: the arrays of the elements of a data set of ``tf.data``, for a queue that takes them ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray
from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.ops import gen_dataset_ops

from gcl.kernels.uninterrupted import uninterrupted
from ipu_emu.hostio.feeds.prefetch_queue import ElementStream

__all__ = ["arrays_of", "stream_of"]


def stream_of(dataset: Any) -> ElementStream:
    """The elements of a data set, or those that are left of an iterator of one."""
    return ElementStream(lambda: _elements(dataset))


def _elements(dataset: Any) -> Iterator[list[NDArray[Any]]]:
    """Run in a thread of its own, whose mode it changes."""
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

    The iterator's op is called as such: a call of the iterator costs five times as much. OutOfRangeError is its end.
    """
    with uninterrupted():
        found = gen_dataset_ops.iterator_get_next(
            iterator._iterator_resource, iterator._flat_output_types, iterator._flat_output_shapes
        )
        return [tensor._numpy() for tensor in found]
