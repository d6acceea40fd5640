"""Collective calls: the collectives of a process group, with the signatures that PyTorch calls."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp
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

from gcl.torch.calls import Calls, Tensors, is_in_backward, wait_at_end_of_backward
from gcl.torch.work import GclWork


class CollectiveCalls(Calls):
    """A process group that makes collectives."""

    def allreduce(self, tensors: Tensors, opts: AllreduceOptions | None = None) -> Any:
        """Combine a tensor of all ranks in place."""
        opts = opts or AllreduceOptions()
        if far := self._elsewhere(tensors):
            return far.allreduce(tensors, opts)
        self._check("all_reduce", tensors, opts.reduceOp)
        work, op = self._collectives, opts.reduceOp
        if len(tensors) == 1:
            begun = self._begin("all_reduce", lambda: work.all_reduce(tensors[0], op), list(tensors), tensors, opts)
            if opts.asyncOp and _calls_from_backward():
                wait_at_end_of_backward(begun)
            return begun
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
        self._check("all_gather", [*inputs, *(tensor for some in outputs for tensor in some)])
        if len(outputs) != self.size() or any(len(some) != len(inputs) for some in outputs):
            raise self._refused(
                f"allgather_coalesced: output lists should be equal in size and number: {list(map(len, outputs))} "
                f"tensors for {len(inputs)} inputs of {self.size()} ranks"
            )
        work = self._collectives

        def run() -> None:
            for index, tensor in enumerate(inputs):
                work.all_gather([some[index] for some in outputs], tensor)

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
        if dtype is None and not is_in_backward():
            raise self._refused(
                "ddp_hook needs the same number of samples on all ranks, but one has no more: "
                "in model.join() register gcl.torch.bf16_hook, or no hook"
            )

        def run() -> None:
            if dtype is None or dtype == buffer.dtype:
                work.average_storage(number, buffer)
            else:
                work.average_as(dtype, buffer)

        opts = AllreduceOptions()
        opts.reduceOp = ReduceOp.AVG
        begun = self._begin("all_reduce", run, buffer, [buffer], opts)
        wait_at_end_of_backward(begun)
        return begun


def _calls_from_backward() -> bool:
    """Whether the caller's caller is PyTorch's backward pass, without Python frames in between: DDP's reducer."""
    frame = sys._getframe(1).f_back
    return frame is not None and frame.f_code is torch.autograd.graph._engine_run_backward.__code__
