"""Process group: gcl's collectives as a ``torch.distributed.ProcessGroup``.

Collectives run one after the other: at once in the calling thread if the program waits for each, else in a thread of
the group. Sends and receives are matched by source and tag, beside the collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import RLock
from typing import Any

import torch
from torch.autograd import _profiler_enabled
from torch.autograd.profiler import record_function
from torch.distributed import Backend, ProcessGroup, ReduceOp, Store
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from gcl.core.request import begun_here
from gcl.errors import ArgumentError, GclError
from gcl.torch.background import Background
from gcl.torch.collectives import Collectives
from gcl.torch.host_group import HostGroup
from gcl.torch.other_devices import OtherDevices
from gcl.torch.reductions import check_operator
from gcl.torch.several_hosts import SeveralHosts
from gcl.torch.tensors import Flat, bytes_of, check_dense
from gcl.torch.work import GclWork, as_dist_error

__all__ = ["GclProcessGroup"]

Tensors = Sequence[torch.Tensor]


class GclProcessGroup(ProcessGroup):
    """Rank ``rank`` of ``ranks``, joined by ``group``; ``timeout`` in seconds."""

    def __init__(self, store: Store, group: HostGroup | SeveralHosts, timeout: float) -> None:
        super().__init__(group.rank, group.ranks)
        self._store, self._group, self._timeout = store, group, timeout
        self._collectives = Collectives(group)
        self._others = OtherDevices(self)
        self._background = Background(group.has_core, group.is_awaited)
        self._lock = RLock()
        self._sequence = 0
        self._name = self._description = ""

    # what a program may ask of a group, and of its back end

    def getBackendName(self) -> str:  # noqa: N802  PyTorch's name
        """The name by which programs ask for this back end."""
        return "gcl"

    def name(self) -> str:
        """As ``getBackendName``."""
        return "gcl"

    def get_group_store(self) -> Store:
        """The store over which the ranks met."""
        return self._store

    @property
    def group_name(self) -> str:
        """The name that PyTorch gave the group."""
        return self._name

    @property
    def group_desc(self) -> str:
        """What the group is for."""
        return self._description

    def _set_group_name(self, name: str) -> None:
        super()._set_group_name(name)
        self._name = name

    def _set_group_desc(self, desc: str) -> None:
        super()._set_group_desc(desc)
        self._description = desc

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), *map(torch.device, self._others.devices())]

    def _get_backend(self, device: torch.device) -> Any:
        return self if torch.device(device).type == "cpu" else self._others.of(torch.device(device).type)

    supports_splitting = supports_coalescing = supports_time_estimate = False

    @property
    def options(self) -> Backend.Options:
        """The options of a back end."""
        return Backend.Options("gcl", timedelta(seconds=self._timeout))

    def set_timeout(self, timeout: timedelta) -> None:
        """Bound every wait of this rank by ``timeout`` from now on."""
        self._timeout = self._group.timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # collectives

    def allreduce(self, tensors: Tensors, opts: AllreduceOptions | None = None) -> Any:
        """Combine a tensor of all ranks in place."""
        opts = opts or AllreduceOptions()
        if far := self._elsewhere(tensors):
            return far.allreduce(tensors, opts)
        self._check("all_reduce", tensors, opts.reduceOp)
        work, op = self._collectives, opts.reduceOp
        if len(tensors) == 1:
            return self._begin("all_reduce", lambda: work.all_reduce(tensors[0], op), list(tensors), tensors, opts)
        return self._begin("all_reduce", lambda: work.all_reduce_list(tensors, op), list(tensors), tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: AllreduceOptions | None = None) -> Any:
        """Combine each of a list of tensors of all ranks in place."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Tensors, opts: ReduceOptions) -> Any:
        """Combine a tensor of all ranks in that of the root."""
        if far := self._elsewhere(tensors):
            return far.reduce(tensors, opts)
        self._check("reduce", tensors, opts.reduceOp)
        work, op, root = self._collectives, opts.reduceOp, self._root(opts)
        return self._begin("reduce", lambda: work.reduce(tensors[0], op, root), list(tensors), tensors, opts)

    def broadcast(self, tensors: Tensors, opts: BroadcastOptions) -> Any:
        """Copy the tensor of the root to those of all ranks."""
        if far := self._elsewhere(tensors):
            return far.broadcast(tensors, opts)
        self._check("broadcast", tensors)
        work, root = self._collectives, self._root(opts)
        return self._begin("broadcast", lambda: work.broadcast(tensors[0], root), list(tensors), tensors, opts)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: AllgatherOptions | None = None) -> Any:
        """Copy the tensor of rank i to output i of all ranks."""
        opts = opts or AllgatherOptions()
        if far := self._elsewhere(inputs):
            return far.allgather(outputs, inputs, opts)
        self._check("all_gather", [*inputs, *outputs[0]])
        self._check_list("all_gather", outputs[0], inputs[0], "output")
        work = self._collectives
        return self._begin("all_gather", lambda: work.all_gather(outputs[0], inputs[0]), outputs, inputs, opts)

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: AllgatherOptions | None = None
    ) -> Any:
        """Copy tensor k of rank i to output [i][k] of all ranks."""
        opts = opts or AllgatherOptions()
        if far := self._elsewhere(inputs):
            return far.allgather_coalesced(outputs, inputs, opts)
        self._check("all_gather", [*inputs, *(one for some in outputs for one in some)])
        if len(outputs) != self.size() or any(len(some) != len(inputs) for some in outputs):
            raise self._refused(
                f"allgather_coalesced: output lists should be equal in size and number: {list(map(len, outputs))} "
                f"tensors for {len(inputs)} inputs of {self.size()} ranks"
            )
        work = self._collectives

        def run() -> None:
            for place, tensor in enumerate(inputs):
                work.all_gather([some[place] for some in outputs], tensor)

        return self._begin("all_gather", run, outputs, inputs, opts)

    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: AllgatherOptions | None = None
    ) -> Any:
        """Copy the tensor of rank i to part i of ``output`` of all ranks."""
        opts = opts or AllgatherOptions()
        if far := self._elsewhere([tensor]):
            return far.all_gather_single(output, tensor, opts)
        self._check("all_gather", [tensor, output])
        self._check_whole("all_gather_into_tensor", "output", output, tensor)
        work = self._collectives
        return self._begin(
            "_all_gather_base", lambda: work.all_gather_single(output, tensor), [output], [tensor], opts
        )

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: AllgatherOptions | None = None
    ) -> Any:
        """``all_gather_single`` of each pair of tensors."""
        opts = opts or AllgatherOptions()
        if far := self._elsewhere(inputs):
            return far.allgather_into_tensor_coalesced(outputs, inputs, opts)
        self._check("all_gather", [*inputs, *outputs])
        pairs = list(zip(outputs, inputs, strict=True))
        for output, tensor in pairs:
            self._check_whole("all_gather_into_tensor", "output", output, tensor)
        work = self._collectives

        def run() -> None:
            for output, tensor in pairs:
                work.all_gather_single(output, tensor)

        return self._begin("_all_gather_base", run, list(outputs), inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors], opts: ReduceScatterOptions | None = None
    ) -> Any:
        """Combine tensor i of all ranks in the output of rank i."""
        opts = opts or ReduceScatterOptions()
        if far := self._elsewhere(outputs):
            return far.reduce_scatter(outputs, inputs, opts)
        self._check("reduce_scatter", [*outputs, *inputs[0]], opts.reduceOp)
        if len(inputs[0]) != self.size():
            raise self._refused(f"reduce_scatter: {len(inputs[0])} inputs for {self.size()} ranks; give one for each")
        work, op = self._collectives, opts.reduceOp
        return self._begin(
            "reduce_scatter",
            lambda: work.reduce_scatter(outputs[0], inputs[0], op),
            list(outputs),
            inputs[0],
            opts,
        )

    def reduce_scatter_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: ReduceScatterOptions | None = None
    ) -> Any:
        """Combine ``tensor`` of all ranks; rank i gets part i in ``output``."""
        opts = opts or ReduceScatterOptions()
        if far := self._elsewhere([tensor]):
            return far.reduce_scatter_single(output, tensor, opts)
        self._check("reduce_scatter", [output, tensor], opts.reduceOp)
        self._check_whole("reduce_scatter_tensor", "input", tensor, output)
        work, op = self._collectives, opts.reduceOp
        return self._begin(
            "_reduce_scatter_base",
            lambda: work.reduce_scatter_single(output, tensor, op),
            [output],
            [tensor],
            opts,
        )

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: ReduceScatterOptions | None = None
    ) -> Any:
        """``reduce_scatter_single`` of each pair of tensors."""
        opts = opts or ReduceScatterOptions()
        if far := self._elsewhere(inputs):
            return far.reduce_scatter_tensor_coalesced(outputs, inputs, opts)
        self._check("reduce_scatter", [*outputs, *inputs], opts.reduceOp)
        pairs = list(zip(outputs, inputs, strict=True))
        for output, tensor in pairs:
            self._check_whole("reduce_scatter_tensor", "input", tensor, output)
        work, op = self._collectives, opts.reduceOp

        def run() -> None:
            for output, tensor in pairs:
                work.reduce_scatter_single(output, tensor, op)

        return self._begin("_reduce_scatter_base", run, list(outputs), inputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: GatherOptions) -> Any:
        """Copy the tensor of rank i to output i of the root."""
        if far := self._elsewhere(inputs):
            return far.gather(outputs, inputs, opts)
        root = self._root(opts)
        outs = list(outputs[0]) if self.rank() == root and outputs else []
        self._check("gather", [*inputs, *outs])
        if self.rank() == root:
            self._check_list("gather", outs, inputs[0], "output")
        work = self._collectives
        return self._begin("gather", lambda: work.gather(outs, inputs[0], root), list(outputs), inputs, opts)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: ScatterOptions) -> Any:
        """Copy tensor i of the root to the output of rank i."""
        if far := self._elsewhere(outputs):
            return far.scatter(outputs, inputs, opts)
        root = self._root(opts)
        parts = list(inputs[0]) if self.rank() == root and inputs else []
        self._check("scatter", [*outputs, *parts])
        if self.rank() == root:
            self._check_list("scatter", parts, outputs[0], "input")
        work = self._collectives
        return self._begin("scatter", lambda: work.scatter(outputs[0], parts, root), list(outputs), outputs, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: AllToAllOptions | None = None) -> Any:
        """Copy tensor j of rank i to output i of rank j."""
        opts = opts or AllToAllOptions()
        if far := self._elsewhere(inputs):
            return far.alltoall(outputs, inputs, opts)
        self._check("all_to_all", [*outputs, *inputs])
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise self._refused(
                f"all_to_all: {len(inputs)} inputs and {len(outputs)} outputs for {self.size()} ranks; "
                "give one of each"
            )
        work = self._collectives
        return self._begin("all_to_all", lambda: work.all_to_all(outputs, inputs), list(outputs), inputs, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_sizes: Sequence[int],
        sizes: Sequence[int],
        opts: AllToAllOptions | None = None,
    ) -> Any:
        """Copy part j of ``tensor`` of rank i to part i of ``output`` of rank j."""
        opts = opts or AllToAllOptions()
        if far := self._elsewhere([tensor]):
            return far.alltoall_base(output, tensor, output_sizes, sizes, opts)
        self._check("all_to_all", [output, tensor])
        work = self._collectives
        return self._begin(
            "all_to_all",
            lambda: work.all_to_all_single(output, tensor, output_sizes, sizes),
            [output],
            [tensor],
            opts,
        )

    alltoall_base = all_to_all_single

    def barrier(self, opts: BarrierOptions | None = None) -> Any:
        """Wait for all ranks."""
        opts = opts or BarrierOptions()
        return self._begin("barrier", self._collectives.barrier, [], [], opts)

    def average_bucket(self, number: int, buffer: torch.Tensor, dtype: torch.dtype | None = None) -> GclWork:
        """Begin to average ``buffer``, bucket ``number`` of DDP, as elements of ``dtype`` if it is given."""
        work = self._collectives
        self._check("all_reduce", [buffer], ReduceOp(ReduceOp.AVG))

        def run() -> None:
            if dtype is None or dtype == buffer.dtype:
                work.average_storage(number, buffer)
            else:
                work.average_as(dtype, buffer)

        return self._begin("all_reduce", run, buffer, [buffer], AllreduceOptions())

    # memory that the ranks share

    def empty(self, size: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
        """A tensor in memory that the ranks of the host share."""
        return self._collectives.empty(size, dtype or torch.get_default_dtype())

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Whether ``allocate_tensor`` has memory for ``device``."""
        return bool(torch.device(device).type == "cpu")

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """As ``empty``; FSDP asks for it after ``set_allocate_memory_from_process_group_for_comm``."""
        return self.empty([size], dtype)

    def monitored_barrier(self, timeout: timedelta | float | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; rank 0 names the first, or all, that do not come."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        seconds = self._timeout if seconds is None else seconds
        self._background.drain()
        self._group.monitored_barrier(seconds, all_ranks=wait_all_ranks)

    # sends and receives

    def send(self, tensors: Tensors, target: int, tag: int) -> Any:
        """Send a tensor to rank ``target``."""
        if far := self._elsewhere(tensors):
            return far.send(tensors, target, tag)
        self._check("send", tensors)
        flat = tensors[0].detach().contiguous()
        return self._message("send", tensors, lambda: self._group.messages.send(bytes_of(flat), target, tag))

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        """Receive a tensor from rank ``source``."""
        if far := self._elsewhere(tensors):
            return far.recv(tensors, source, tag)
        return self._receive("recv", tensors, source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        """Receive a tensor from any rank."""
        if far := self._elsewhere(tensors):
            return far.recv_anysource(tensors, tag)
        return self._receive("recvAnySource", tensors, None, tag)

    def _receive(self, name: str, tensors: Tensors, source: int | None, tag: int) -> GclWork:
        self._check(name, tensors)
        flat = Flat(tensors[0], reads=False)
        return self._message(
            name, tensors, lambda: self._group.messages.receive(bytes_of(flat.tensor), source, tag, flat.store)
        )

    def _message(self, name: str, tensors: Tensors, begin: Callable[[], GclWork]) -> GclWork:
        try:
            if _profiler_enabled():
                with record_function(f"gcl:{name}"):
                    return begin()
            return begin()
        except GclError as error:
            found = as_dist_error(error)
            raise found from found.__cause__

    # the end

    def shutdown(self) -> None:
        """Leave in order: ranks that still wait for this one are told."""
        self._background.stop()
        self._group.close()

    def abort(self) -> None:
        """Leave at once: ranks that wait for this one, and calls of this one that wait for others, raise."""
        self._group.abort()

    # how a call is made

    def _begin(self, name: str, collective: Callable[[], None], results: Any, inputs: Tensors, opts: Any) -> GclWork:
        """Run ``collective``: now if the program waits for it at once, else in the thread of the group."""
        self._sequence += 1
        timeout = opts.timeout.total_seconds()
        if timeout > 0 and timeout != self._timeout:
            collective = self._within(timeout, collective)
        if _profiler_enabled():
            collective = _spanned(f"gcl:{name}", collective, inputs)
        if opts.asyncOp:
            return self._later(collective, results)
        with self._lock:
            self._background.drain()
            try:
                with self._group.refusals:
                    collective()
            except BaseException as error:
                found = as_dist_error(error)
                raise found from found.__cause__
        return GclWork.done(results)

    def _later(self, collective: Callable[[], None], results: Any) -> GclWork:
        with self._lock:
            work = GclWork(results)

            def run() -> None:
                try:
                    with self._group.refusals:
                        collective()
                except BaseException as error:
                    work.settle(error)
                else:
                    work.settle()

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
        """The back end of tensors that are not on the CPU, None for those that are or that have none."""
        device = tensors[0].device.type if tensors else "cpu"
        return None if device == "cpu" else self._others.of(device)

    def _refused(self, text: str) -> ArgumentError:
        """The error of a call that is not made, after telling ranks that may wait for it."""
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

    def _check_list(self, name: str, many: Tensors, one: torch.Tensor, which: str) -> None:
        """Raise ArgumentError unless ``many`` are a tensor like ``one`` for each rank."""
        if len(many) != self.size():
            raise self._refused(f"{name}: {len(many)} {which}s for {self.size()} ranks; give one for each")
        for rank, tensor in enumerate(many):
            if tensor.numel() != one.numel() or tensor.dtype != one.dtype:
                raise self._refused(
                    f"{name}: {which} {rank} has shape {list(tensor.shape)} and {tensor.dtype}, the other tensor "
                    f"{list(one.shape)} and {one.dtype}; pass tensors of one size and dtype"
                )

    def _check_whole(self, name: str, which: str, whole: torch.Tensor, part: torch.Tensor) -> None:
        if whole.numel() != part.numel() * self.size() or whole.dtype != part.dtype:
            raise self._refused(
                f"{name}: the {which} has {whole.numel()} elements of {whole.dtype}; it needs {self.size()} x "
                f"{part.numel()} of {part.dtype}"
            )


def _spanned(name: str, collective: Callable[[], None], inputs: Tensors) -> Callable[[], None]:
    """``collective`` as a span of the profiler."""

    def run() -> None:
        with record_function(name):
            collective()

    return run
