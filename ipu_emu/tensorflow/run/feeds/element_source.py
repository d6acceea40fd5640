"""Element source: an infeed of a program that takes the elements of an iterator of ``tf.data``, as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from numpy.typing import NDArray
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.ops import gen_dataset_ops
from tensorflow.python.ops.control_flow_v2_func_graphs import WhileBodyFuncGraph, WhileCondFuncGraph
from tensorflow.python.util import nest

from gcl.kernels.uninterrupted import uninterrupted
from ipu_emu.tensorflow.run.feeds.prefetch_queue import PrefetchQueue, QueueClosed
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, current_trace


class ElementSource:
    """The infeed of a program: provides the elements that were set, or those of an iterator."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self._waiting: Iterator[Any] = iter(())
        self._ahead: PrefetchQueue | None = None

    def set(self, elements: Iterator[Any], ahead: int | None = None, most: int = 0) -> None:
        """Take the next elements from ``elements``.

        A thread prefetches ``ahead`` elements of a data set's iterator, and at most ``most`` until ``close``.
        """
        self._waiting = elements
        if ahead is not None and isinstance(elements, iterator_ops.OwnedIterator):
            self._ahead = PrefetchQueue(partial(elements_of, elements), ahead, most)

    def close(self) -> None:
        """Stop prefetching."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def dequeue(self, trace: FunctionTrace) -> Any:
        """Return the tensors of an element of the program that is traced."""
        _check_place(trace)
        with trace.graph.as_default():
            return trace.element(self, self.spec)

    def next_element(self) -> list[NDArray[Any]]:
        """The arrays of the next element; raise OutOfRangeError at the end of the data."""
        try:
            if self._ahead is not None:
                return self._ahead.next_arrays()
            if isinstance(self._waiting, iterator_ops.OwnedIterator) and context.executing_eagerly():
                return _arrays_of(self._waiting)
            with uninterrupted(), ops.init_scope(), context.eager_mode(), ops.device("CPU:0"):
                return [tensor._numpy() for tensor in nest.flatten(next(self._waiting))]
        except (StopIteration, errors.OutOfRangeError):
            raise errors.OutOfRangeError(None, None, "The data set has no more elements") from None
        except QueueClosed as error:
            raise errors.CancelledError(None, None, str(error)) from None


class GivenIterator:
    """A placeholder, while a function is traced, for an iterator that is an argument of every run."""

    def __init__(self, spec: Any) -> None:
        self.element_spec = spec
        self.source = ElementSource(spec)

    def __iter__(self) -> GivenIterator:
        return self

    def __next__(self) -> Any:
        return self.get_next()

    def get_next(self) -> Any:
        """The tensors of the next element."""
        trace = current_trace()
        assert trace is not None
        return self.source.dequeue(trace)


def next_on_device(before: Any, self: Any) -> Any:
    """Patch the ``next`` of an iterator, which becomes an infeed of the program that is traced."""
    trace = current_trace()
    if trace is None or context.executing_eagerly():
        return before(self)
    key = id(self)
    if key not in trace.sources:
        source = trace.sources[key] = ElementSource(self.element_spec)
        source.set(self)
    return trace.sources[key].dequeue(trace)


def _check_place(trace: FunctionTrace) -> None:
    graph = ops.get_default_graph()
    while graph is not None and graph is not trace.graph:
        if isinstance(graph, WhileBodyFuncGraph | WhileCondFuncGraph):
            raise NotImplementedError(
                "an inner loop takes elements of a data set, and its number of iterations is not known when the "
                "program is compiled; use `for _ in tf.range(n)` with a known n"
            )
        graph = getattr(graph, "outer_graph", None)


def elements_of(dataset: Any) -> Iterator[list[NDArray[Any]]]:
    """Yield the elements of a data set, or the other ones of an iterator, in a thread that is set to eager mode."""
    with ops.init_scope(), context.eager_mode(), ops.device("CPU:0"):
        iterator = iter(dataset)
        while True:
            try:
                element = _arrays_of(iterator)
            except errors.OutOfRangeError:
                return
            yield element


def _arrays_of(iterator: Any) -> list[NDArray[Any]]:
    """The arrays of the next element of an iterator in eager mode, which share the memory of TensorFlow's tensors.

    It calls the iterator's op, as the iterator itself takes five times as long. OutOfRangeError marks the end.
    """
    with uninterrupted():
        tensors = gen_dataset_ops.iterator_get_next(
            iterator._iterator_resource, iterator._flat_output_types, iterator._flat_output_shapes
        )
        return [tensor._numpy() for tensor in tensors]
