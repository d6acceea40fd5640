"""Outfeed queue: results that a program enqueues in every iteration, and the host dequeues."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.ops.control_flow_v2_func_graphs import CondBranchFuncGraph
from tensorflow.python.util import nest

from ipu_emu.errors import ArgumentError, FeedError
from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.run.feeds.queues import OutfeedMode as IPUOutfeedMode
from ipu_emu.tensorflow.run.feeds.queues import OutfeedQueue
from ipu_emu.tensorflow.run.host_calls import host_call
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, current_trace

__all__ = ["IPUOutfeedMode", "IPUOutfeedQueue", "ScopedIPUOutfeedQueue"]


class IPUOutfeedQueue:
    """A queue of results. A string instead of a mode is the feed name of early releases, and is ignored."""

    @without_effect("optimise_latency", "feed_name", "replication_factor", "io_batch_size")
    def __init__(
        self,
        outfeed_mode: IPUOutfeedMode | str | None = None,
        device_ordinal: int | None = None,
        buffer_depth: int = 3,
        optimise_latency: bool = False,
        *,
        feed_name: str | None = None,
        outfeed_all: bool | None = None,
        replication_factor: int | None = None,
        io_batch_size: int = 1,
    ) -> None:
        if outfeed_all is False and not isinstance(outfeed_mode, IPUOutfeedMode):
            outfeed_mode = IPUOutfeedMode.LAST
        self.rows = OutfeedQueue(outfeed_mode, device_ordinal, buffer_depth)
        self._structure: Any = None
        self._specs: list[tuple[Any, Any]] = []
        self._trace: FunctionTrace | None = None
        #: Number of micro-batches whose values are summed before they are kept; set by a pipeline.
        self.added = 1
        self.added_dtype: Any = None

    @property
    def enqueued(self) -> bool:
        """Whether a program enqueues elements."""
        return self._trace is not None

    @property
    def is_empty(self) -> bool:
        """Whether no element is waiting."""
        return self.rows.is_empty

    @property
    def keeps_all(self) -> bool:
        """Whether all elements are kept."""
        return self.rows.mode is IPUOutfeedMode.ALL or self.added > 1

    def enqueue(self, tensors: Any) -> Any:
        """Enqueue a tensor, or a tuple or dict of tensors, in every iteration; return an op."""
        trace = current_trace()
        if trace is None:
            raise ValueError("An outfeed can only be enqueued in a program that is compiled for the IPU.")
        graph = ops.get_default_graph()
        while isinstance(graph, CondBranchFuncGraph):
            graph = graph.outer_graph
        if graph is not trace.graph:
            raise ValueError("An outfeed is enqueued in an inner loop; enqueue it after that")
        before = self._trace
        if before is not None and (before is trace or before.owner is not trace.owner):
            raise ValueError("An outfeed can only be enqueued once.")
        if isinstance(tensors, dict) and not all(isinstance(key, str) for key in tensors):
            raise TypeError("The keys of an enqueued dict must be strings.")
        self._trace = trace
        flat = [ops.convert_to_tensor(value) for value in nest.flatten(tensors)]
        self._structure = nest.map_structure(lambda value: 0, tensors)
        self._specs = [(self._dtype(tensor.dtype), tensor.shape) for tensor in flat]
        return trace.effect(flat, "outfeed", self)

    def _dtype(self, dtype: Any) -> Any:
        return dtype if self.added_dtype is None else self.added_dtype

    def put(self, arrays: list[Any], replicas: int) -> None:
        """Store the elements of a run: for each array of an element [enqueues, replicas, ...]."""
        if self.added > 1:
            arrays = [self._sums(array) for array in arrays]
        if replicas == 1:
            arrays = [array[:, 0] for array in arrays]
        self.rows.put_rows(arrays)

    def _sums(self, array: Any) -> Any:
        """The sums of the values of each batch, added one after the other."""
        if self.added_dtype is not None:
            array = array.astype(self.added_dtype.as_numpy_dtype)
        batches = array.reshape(-1, self.added, *array.shape[1:])
        total = batches[:, 0].copy()
        for number in range(1, self.added):
            total += batches[:, number]
        return total

    @without_effect("wait_for_completion")
    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """Return all elements since the last call, or the last one, in the structure of an element."""
        if not self.enqueued:
            raise ValueError("Trying to dequeue an outfeed which has not been enqueued.")
        types = [dtype for dtype, _ in self._specs]
        if context.executing_eagerly():
            tensors = [ops.convert_to_tensor(array) for array in self._take()]
        else:
            with ops.init_scope():
                outputs = host_call(self._take, [], types, "outfeed_dequeue")
            tensors = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        return nest.pack_sequence_as(self._structure, tensors)

    def _take(self) -> list[Any]:
        try:
            taken = self.rows.take()
        except FeedError as error:
            raise ArgumentError(str(error)) from None
        return taken or [np.empty((0, *shape.as_list()), dtype.as_numpy_dtype) for dtype, shape in self._specs]

    @property
    def deleter(self) -> Any:
        """Return an op that deletes the queue."""
        return control_flow_ops.no_op() if not context.executing_eagerly() else None

    def __iter__(self) -> Any:
        if not context.executing_eagerly():
            raise RuntimeError("IPUOutfeedQueue can only be iterated over in eager mode.")
        if self.rows.mode is not IPUOutfeedMode.ALL:
            raise RuntimeError("IPUOutfeedQueue can only be iterated over if the mode is IPUOutfeedMode.ALL.")
        rows = [tensor.numpy() for tensor in nest.flatten(self.dequeue())]
        for number in range(len(rows[0]) if rows else 0):
            yield nest.pack_sequence_as(self._structure, [ops.convert_to_tensor(row[number]) for row in rows])


class ScopedIPUOutfeedQueue(IPUOutfeedQueue):
    """An outfeed that is deleted with its Python object."""
