"""Calls: checks and runs the calls of a process group, at once or in the background, with time-out and span.

Collectives run one after the other: at once in the calling thread if the program waits for each, else in a thread of
the group. Those of a callback of a future, as in PowerSGD, run at once in that thread, which could not begin them
before the callback returns: on all ranks right after the collective of the future.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from threading import RLock
from typing import Any

import torch
from torch.autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.distributed import PrefixStore, ProcessGroup, ReduceOp, Store, get_backend_config

from gcl.core.request import begun_here
from gcl.errors import ArgumentError
from gcl.torch.background import Background
from gcl.torch.collectives import Collectives
from gcl.torch.one_host.host_group import HostGroup
from gcl.torch.reductions import check_operator, name_of
from gcl.torch.several_hosts.two_levels import SeveralHosts
from gcl.torch.tensors import check_dense
from gcl.torch.work import GclWork, as_dist_error
from popdist_py import trace
from popdist_py.trace import Category, Recorder

Tensors = Sequence[torch.Tensor]
#: Names of collectives in PyTorch's profiler, and in traces.
_NAMES = {"_all_gather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter"}


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


def traced_calls(group: HostGroup | SeveralHosts) -> TracedCalls | None:
    """The recorder of the collectives of a rank of ``group``; None if this process records no trace."""
    recorder = trace.recorder()
    return None if recorder is None else TracedCalls(recorder, group)


class TracedCalls:
    """Spans with kind, bytes, operator, group and method; the value is the call's place among its group's.

    All ranks of a group make the same calls in the same order, so the spans of one call have the same value.
    """

    def __init__(self, recorder: Recorder, group: HostGroup | SeveralHosts) -> None:
        self._recorder = recorder
        self._about = {"transport": group.transport, "replicas": 1, "method": group.method}

    def recorded(
        self,
        call: str,
        collective: Callable[[], None],
        inputs: Sequence[torch.Tensor],
        opts: Any,
        group: str,
        index: int,
    ) -> Callable[[], None]:
        """``collective``, wrapped to record itself when it runs, as call ``index`` of the process group ``group``."""
        name = self._recorder.name(
            _NAMES.get(call, call),
            Category.COLLECTIVES,
            **self._about,
            communicator=f"torch {group}",
            group=f"process group {group}",
            bytes=sum(tensor.nbytes for tensor in inputs),
            operator=name_of(opts.reduceOp).lower() if hasattr(opts, "reduceOp") else "",
        )

        def run() -> None:
            with self._recorder.span(name, value=index):
                collective()

        return run


class OtherDevices:
    """The back ends of ``group`` by device, created at their first use.

    PyTorch does not create them for a process group that is written in Python.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._made: dict[str, Any] = {}

    def devices(self) -> list[str]:
        """The devices that have another back end than gcl."""
        return list(self._named())

    def of(self, device: str) -> Any:
        """The back end of ``device``."""
        if device not in self._made:
            name = self._named().get(device)
            if name is None:
                raise ArgumentError(
                    f"gcl takes tensors on the CPU, but got one on {device}; pass tensor.cpu(), or give {device} a "
                    f'back end of its own, as in init_process_group("cpu:gcl,{device}:nccl")'
                )
            self._made[device] = self._make(device, name)
        return self._made[device]

    def _named(self) -> dict[str, str]:
        """Device -> name of its back end, except devices of gcl."""
        try:
            text = str(get_backend_config(self._group))
        except ValueError:  # not registered yet, or destroyed
            return {}
        pairs = (pair.split(":") for pair in text.split(",") if ":" in pair)
        return {device: name for device, name in pairs if device != "cpu" and name != "gcl"}

    def _make(self, device: str, name: str) -> Any:
        from torch.distributed import distributed_c10d as c10d

        group, store = self._group, PrefixStore(f"{device}/", self._group.get_group_store())
        timeout: timedelta = group.options._timeout
        backend: Any
        if name == "gloo":
            backend = c10d.ProcessGroupGloo(store, group.rank(), group.size(), timeout)
        elif name == "nccl" and c10d.is_nccl_available():
            options = c10d.ProcessGroupNCCL.Options()
            options._timeout = timeout
            backend = c10d.ProcessGroupNCCL(store, group.rank(), group.size(), options)
        else:
            raise ArgumentError(f"back end {name} for {device} does not work here beside gcl; use nccl or gloo")
        group._register_backend(torch.device(device), ProcessGroup.BackendType.CUSTOM, backend)
        return backend
