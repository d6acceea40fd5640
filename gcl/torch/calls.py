"""Calls: checks and runs the calls of a process group, at once or in the background, with time-out and span.

Collectives run one after the other: at once in the calling thread if the program waits for each, else in a thread of
the group. Those of a callback of a future, as in PowerSGD, run at once in that thread, which could not begin them
before the callback returns: on all ranks right after the collective of the future.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any

import torch
from torch.autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.distributed import ProcessGroup, ReduceOp, Store

from gcl.core.request import begun_here
from gcl.errors import ArgumentError
from gcl.torch.background import Background
from gcl.torch.collectives import Collectives
from gcl.torch.one_host.host_group import HostGroup
from gcl.torch.other_devices import OtherDevices
from gcl.torch.reductions import check_operator
from gcl.torch.several_hosts.two_levels import SeveralHosts
from gcl.torch.tensors import check_dense
from gcl.torch.traced_calls import traced_calls
from gcl.torch.work import GclWork, as_dist_error

Tensors = Sequence[torch.Tensor]


class Calls(ProcessGroup):
    """The calls of rank ``rank`` of ``ranks``, joined by ``group``; ``timeout`` in seconds."""

    def __init__(self, store: Store, group: HostGroup | SeveralHosts, timeout: float) -> None:
        super().__init__(group.rank, group.ranks)
        self._store, self._group, self._timeout = store, group, timeout
        self._collectives = Collectives(group)
        self._others = OtherDevices(self)
        self._background = Background(group.has_core, group.is_awaited)
        self._traced = traced_calls(group)
        self._lock = RLock()
        self._sequence = 0

    def get_group_store(self) -> Store:
        """The store over which the ranks met."""
        return self._store

    def _begin(self, name: str, collective: Callable[[], None], results: Any, inputs: Tensors, opts: Any) -> GclWork:
        """Run ``collective``: now if the program waits for it at once, else in the thread of the group."""
        self._sequence += 1
        timeout = opts.timeout.total_seconds()
        if timeout > 0 and timeout != self._timeout:
            collective = self._within(timeout, collective)
        if self._traced is not None:
            collective = self._traced.recorded(name, collective, inputs, opts, self.group_name, self._sequence)
        if opts.asyncOp:
            return self._later_in_span(name, collective, results)
        if _profiler_enabled():
            collective = _spanned(f"gcl:{name}", collective, inputs)
        with self._turn():
            self._background.drain()
            try:
                with self._group.refusals:
                    collective()
            except BaseException as error:
                dist_error = as_dist_error(error)
                raise dist_error from dist_error.__cause__
        return GclWork.done(results)

    def _turn(self) -> AbstractContextManager[object]:
        """A block around a call, for which calls of other threads wait; a callback already has the turn."""
        return nullcontext() if self._background.is_current else self._lock

    def _later_in_span(self, name: str, collective: Callable[[], None], results: Any) -> GclWork:
        """``_later`` in a span of the profiler, which does not see spans of another thread."""
        if not _profiler_enabled():
            return self._later(collective, results)
        with record_function(f"gcl:{name}") as span:
            work = self._later(collective, results)
            span._call_end_callbacks_on_future(work.get_future())
        return work

    def _later(self, collective: Callable[[], None], results: Any) -> GclWork:
        work = GclWork(results)

        def run() -> None:
            try:
                with self._group.refusals:
                    collective()
            except BaseException as error:
                work.settle(error)
            else:
                work.settle()

        if self._background.is_current:
            run()
            return work
        with self._lock:
            work.waits_with(self._background.begin(begun_here(run)))
        return work

    def _within(self, seconds: float, collective: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            self._group.timeout = seconds
            try:
                collective()
            finally:
                self._group.timeout = self._timeout

        return run

    def _elsewhere(self, tensors: Tensors) -> Any:
        """The back end of tensors that are not on the CPU; None for tensors on the CPU, or without a back end."""
        device = tensors[0].device.type if tensors else "cpu"
        return None if device == "cpu" else self._others.of(device)

    def _refused(self, text: str) -> ArgumentError:
        """Notify ranks that may wait for a refused call; return its error."""
        error = ArgumentError(text)
        self._group.refuse(error)
        return error

    def _root(self, opts: Any) -> int:
        root = int(opts.rootRank)
        if not 0 <= root < self.size():
            raise self._refused(f"root {root} is not a rank of the group; use 0 to {self.size() - 1}")
        return root

    def _check(self, name: str, tensors: Tensors, op: ReduceOp | None = None) -> None:
        with self._group.refusals:
            if not tensors:
                raise ArgumentError(f"{name} needs a tensor, but got an empty list")
            check_dense(tensors, name)
            if op is not None:
                check_operator(op, tensors[0].dtype)

    def _check_list(self, name: str, many: Tensors, reference: torch.Tensor, which: str) -> None:
        """Raise ArgumentError unless ``many`` are a tensor like ``reference`` for each rank."""
        if len(many) != self.size():
            raise self._refused(f"{name}: {len(many)} {which}s for {self.size()} ranks; give one for each")
        for rank, tensor in enumerate(many):
            if tensor.numel() != reference.numel() or tensor.dtype != reference.dtype:
                raise self._refused(
                    f"{name}: {which} {rank} has shape {list(tensor.shape)} and {tensor.dtype}, the other tensor "
                    f"{list(reference.shape)} and {reference.dtype}; pass tensors of one size and dtype"
                )

    def _check_whole(self, name: str, which: str, joined: torch.Tensor, part: torch.Tensor) -> None:
        if joined.numel() != part.numel() * self.size() or joined.dtype != part.dtype:
            raise self._refused(
                f"{name}: the {which} has {joined.numel()} elements of {joined.dtype}; it needs {self.size()} x "
                f"{part.numel()} of {part.dtype}"
            )


def is_in_backward() -> bool:
    """Whether the calling thread is in a backward pass; DDP also calls for ranks without further samples."""
    return bool(torch._C._current_graph_task_id() >= 0)


def wait_at_end_of_backward(work: GclWork) -> None:
    """Wait for a collective of DDP before DDP does, which would change the class of its error."""
    if is_in_backward():
        torch.autograd.Variable._execution_engine.queue_callback(lambda: work.wait() and None)


def _spanned(name: str, collective: Callable[[], None], inputs: Tensors) -> Callable[[], None]:
    """``collective`` as a span of the profiler."""

    def run() -> None:
        with record_function(name):
            collective()

    return run
