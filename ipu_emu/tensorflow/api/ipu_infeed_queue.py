"""Infeed queue: the elements of a data set, one for each replica in every iteration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.eager import context
from tensorflow.python.framework import errors, ops
from tensorflow.python.ops import control_flow_ops, gen_dataset_ops, gen_experimental_dataset_ops
from tensorflow.python.util import nest

from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.run import session_runs
from ipu_emu.tensorflow.run.feeds.element_source import elements_of
from ipu_emu.tensorflow.run.feeds.prefetch_queue import PrefetchQueue, QueueClosed
from ipu_emu.tensorflow.run.feeds.queues import check_ordinal, check_prefetch_depth
from ipu_emu.tensorflow.run.host_calls import host_call
from ipu_emu.tensorflow.trace.function_trace import current_trace

__all__ = ["IPUInfeedQueue", "IPUIterator", "IPUOwnedIterator", "ScopedIPUInfeedQueue"]


class IPUInfeedQueue:
    """A queue over a ``tf.data`` data set; a string as second argument is the feed name of early releases."""

    @without_effect("optimise_latency", "feed_name", "replication_factor", "data_to_prefetch")
    def __init__(
        self,
        dataset: Any,
        device_ordinal: int | str | None = None,
        prefetch_depth: int | None = None,
        optimise_latency: bool = False,
        *,
        feed_name: str | None = None,
        replication_factor: int | None = None,
        data_to_prefetch: int | None = None,
    ) -> None:
        check_ordinal(device_ordinal)
        self._prefetch_depth = check_prefetch_depth(prefetch_depth or None)  # 0 is the default here, as None
        if not isinstance(dataset, dataset_ops.DatasetV2 | dataset_ops.DatasetV1):
            raise TypeError(f"IPUInfeedQueue takes a tf.data.Dataset, found {type(dataset).__name__}")
        self._dataset = dataset
        self._spec = dataset.element_spec
        _check_spec(self._spec)
        self._initializer: Any = None
        self._elements: PrefetchQueue | None = None
        #: Whether a program dequeues the infeed.
        self.dequeued = False
        if not context.executing_eagerly():
            self._variant = self._serialised()

    def _serialised(self) -> Any:
        """The data set as a tensor that a session can compute."""
        return gen_dataset_ops.dataset_to_graph_v2(
            self._dataset._variant_tensor, external_state_policy=1, strip_device_assignment=True
        )

    @property
    def number_of_tuple_elements(self) -> int:
        """The number of tensors of an element."""
        return len(nest.flatten(self._spec))

    @property
    def initializer(self) -> Any:
        """Return an op that starts the queue; in eager mode, start it immediately."""
        if context.executing_eagerly():
            if self._elements is None:
                self._start(self._dataset)
            return None
        if self._initializer is not None:
            raise ValueError("The IPUInfeedQueue `initializer` function can only be called once.")
        with ops.init_scope():
            session_runs.add_infeed(ops.get_default_graph(), self)
            done = host_call(self._restart, [self._variant], [], "infeed_initializer")
        self._initializer = done if isinstance(done, ops.Operation) else control_flow_ops.group(done)
        return self._initializer

    def _restart(self, serialised: bytes) -> None:
        with ops.init_scope(), context.eager_mode(), ops.device("CPU:0"):
            variant = gen_experimental_dataset_ops.dataset_from_graph(serialised)
            self._start(dataset_ops._VariantDataset(variant, self._spec))

    def _start(self, dataset: Any) -> None:
        self.stop()
        self._elements = PrefetchQueue(partial(elements_of, dataset), self._prefetch_depth)

    def _dequeue(self) -> Any:
        """Return the tensors of an element of the program that is being compiled."""
        trace = current_trace()
        if trace is None:
            raise ValueError("An infeed can only be dequeued in a program that is compiled for the IPU.")
        self.dequeued = True
        with ops.name_scope("infeed"):
            return trace.element(self, self._spec)

    def get_next(self) -> Any:
        """Raise ValueError: only a program can dequeue."""
        raise ValueError("`get_next` is obsolete: an infeed is dequeued by the loop or the pipeline that takes it.")

    def next_element(self) -> list[Any]:
        """The arrays of the next element; raise OutOfRangeError at the end of the data."""
        if self._elements is None:
            raise errors.FailedPreconditionError(
                None, None, "The infeed is not initialised; run its initializer before the program"
            )
        try:
            return self._elements.next_arrays()
        except StopIteration:
            raise errors.OutOfRangeError(
                None, None, "The data set of the infeed has no more elements; repeat it, or run fewer iterations"
            ) from None
        except QueueClosed as error:
            raise errors.CancelledError(None, None, str(error)) from None

    @property
    def deleter(self) -> Any:
        """Return an op that stops the queue."""
        if context.executing_eagerly():
            self.stop()
            return None
        with ops.init_scope():
            return host_call(self.stop, [], [], "infeed_deleter")

    def stop(self) -> None:
        """Stop prefetching; a program that waits for an element ends with CancelledError."""
        elements, self._elements = self._elements, None
        if elements is not None:
            elements.close()


class ScopedIPUInfeedQueue(IPUInfeedQueue):
    """An infeed that is deleted with its Python object."""


class IPUIterator:
    """An iterator over a data set for programs of a strategy."""

    def __init__(self, dataset: Any = None, **options: Any) -> None:
        self._queue = IPUInfeedQueue(dataset, **options)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with ops.init_scope():
            if context.executing_eagerly():
                self._queue.initializer  # noqa: B018
        return self._queue._dequeue()


IPUOwnedIterator = IPUIterator


def _check_spec(spec: Any) -> None:
    """Raise ValueError for elements of unknown sizes."""
    for part in nest.flatten(spec):
        shape = getattr(part, "shape", None)
        if shape is None or not shape.is_fully_defined():
            raise ValueError(
                f"Output shape {shape} is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`."
            )
