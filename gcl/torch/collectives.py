"""Collectives: PyTorch's collectives on tensors of any dtype and layout, based on those of a host group on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
import torch
from torch.distributed import ReduceOp

from gcl.core.operators import Operator
from gcl.errors import ArgumentError
from gcl.torch.one_host.host_group import HostGroup
from gcl.torch.reductions import combine_all, name_of, operator_of, real_view
from gcl.torch.several_hosts.two_levels import SeveralHosts
from gcl.torch.tensors import REDUCED, Flat, array_of, bytes_of, contiguous

Tensors = Sequence[torch.Tensor]
_PREMUL_SUM = ReduceOp.RedOpType.PREMUL_SUM


class Collectives:
    """Collectives of one rank of ``group``; all tensors are on the CPU and dense."""

    def __init__(self, group: HostGroup | SeveralHosts) -> None:
        self.group, self.rank, self.ranks = group, group.rank, group.ranks

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp) -> None:
        """Combine ``tensor`` of all ranks in place."""
        with Flat(tensor) as flat:
            if op.op == _PREMUL_SUM:
                flat.mul_(op.factor)
                op = ReduceOp(ReduceOp.SUM)
            real = real_view(flat, op)
            operator = operator_of(op, real.dtype)
            if operator is not None:
                self.group.all_reduce(array_of(real), operator)
            else:
                self._combine(real, op)

    def all_reduce_list(self, tensors: Tensors, op: ReduceOp) -> None:
        """Combine each of ``tensors``; those of one dtype in one transfer."""
        for same in _by_dtype(tensors):
            if len(same) == 1:
                self.all_reduce(same[0], op)
                continue
            packed = torch.cat([tensor.detach().reshape(-1) for tensor in same])
            self.all_reduce(packed, op)
            for tensor, part in zip(same, packed.split([tensor.numel() for tensor in same]), strict=True):
                tensor.detach().copy_(part.view(tensor.shape))

    def average_storage(self, number: int, tensor: torch.Tensor) -> None:
        """Average ``tensor`` of all ranks in place, in a storage that they share (``SharedStorages``)."""
        if tensor.dtype in REDUCED and tensor.is_contiguous():
            self.group.all_reduce(self.group.stored(number, tensor), Operator.MEAN)
        else:
            self.all_reduce(tensor, ReduceOp(ReduceOp.AVG))

    def average_as(self, dtype: torch.dtype, tensor: torch.Tensor) -> None:
        """Average ``tensor`` of all ranks in place, rounded to ``dtype`` on the way."""
        packed = self.empty(tensor.shape, dtype)
        packed.copy_(tensor.detach())
        self.all_reduce(packed, ReduceOp(ReduceOp.AVG))
        tensor.detach().copy_(packed)

    def empty(self, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor in the shared segment."""
        elements = prod(size)
        if not elements:
            return torch.empty(size, dtype=dtype)
        room = self.group.room(elements * dtype.itemsize)
        return torch.from_numpy(room).view(dtype).view(size)

    def reduce(self, tensor: torch.Tensor, op: ReduceOp, root: int) -> None:
        """Combine ``tensor`` of all ranks in that of rank ``root``."""
        self.all_reduce(tensor if self.rank == root else tensor.detach().clone(), op)

    def reduce_scatter(self, out: torch.Tensor, parts: Tensors, op: ReduceOp) -> None:
        """Combine ``parts[i]`` of all ranks in ``out`` of rank i."""
        parts = [contiguous(part) for part in parts]
        if op.op == _PREMUL_SUM:
            parts = [part * op.factor for part in parts]
            op = ReduceOp(ReduceOp.SUM)
        with Flat(out, reads=False) as flat:
            reals = [real_view(part, op) for part in parts]
            total = real_view(flat, op)
            operator = operator_of(op, total.dtype)
            if operator is not None:
                self.group.reduce_parts([array_of(part)[0] for part in reals], array_of(total)[0], operator)
            else:
                received = [torch.empty_like(total) for _ in parts]
                self.all_to_all(received, reals, name_of(op))
                total.copy_(combine_all(received, op))

    def reduce_scatter_single(self, out: torch.Tensor, tensor: torch.Tensor, op: ReduceOp) -> None:
        """Combine ``tensor`` of all ranks; rank i gets part i."""
        flattened = contiguous(tensor).view(-1)
        operator = operator_of(op, flattened.dtype)
        if operator is None:
            self.reduce_scatter(out, [part.view(out.shape) for part in flattened.chunk(self.ranks)], op)
            return
        with Flat(out, reads=False) as flat:
            self.group.reduce_scatter(array_of(flattened), array_of(flat), operator)

    def all_gather(self, outs: Tensors, tensor: torch.Tensor) -> None:
        """Copy ``tensor`` of rank i to ``outs[i]``."""
        flats = [Flat(out, reads=False) for out in outs]
        what = _described(tensor)
        self.group.all_gather_list(_bytes(tensor), [bytes_of(flat.tensor) for flat in flats], what)
        for flat in flats:
            flat.store()

    def all_gather_single(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        """Copy ``tensor`` of rank i to part i of ``out``."""
        with Flat(out, reads=False) as flat:
            self.group.all_gather(_bytes(tensor), bytes_of(flat), _described(tensor))

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """Copy ``tensor`` of rank ``root`` to those of all ranks."""
        with Flat(tensor) as flat:
            self.group.broadcast(bytes_of(flat), root, _described(flat))

    def all_to_all(self, outs: Tensors, parts: Tensors, what: str = "") -> None:
        """Copy ``parts[j]`` of rank i to ``outs[i]`` of rank j."""
        flats = [Flat(out, reads=False) for out in outs]
        dtype = str(parts[0].dtype)
        self.group.all_to_all(
            [_bytes(part) for part in parts], [bytes_of(flat.tensor) for flat in flats], f"{what} {dtype}".strip()
        )
        for flat in flats:
            flat.store()

    def all_to_all_single(
        self, out: torch.Tensor, tensor: torch.Tensor, out_sizes: Sequence[int], sizes: Sequence[int]
    ) -> None:
        """Copy part j of ``tensor`` to part i of ``out`` of rank j; the parts are ``sizes`` rows long, or equal."""
        packed = contiguous(tensor)
        with Flat(out, reads=False) as flat:
            if not sizes and not out_sizes and tensor.numel() == out.numel() and not _uneven(packed, self.ranks):
                self.group.all_to_all_even(bytes_of(packed), bytes_of(flat), str(tensor.dtype))
                return
            parts = _rows(bytes_of(packed), tensor, sizes, self.ranks, "input")
            targets = _rows(bytes_of(flat), out, out_sizes, self.ranks, "output")
            self.group.all_to_all(parts, targets, str(tensor.dtype))

    def gather(self, outs: Tensors, tensor: torch.Tensor, root: int) -> None:
        """Copy ``tensor`` of rank i to ``outs[i]`` of rank ``root``."""
        flats = [Flat(out, reads=False) for out in outs]
        self.group.gather(_bytes(tensor), [bytes_of(flat.tensor) for flat in flats], root, _described(tensor))
        for flat in flats:
            flat.store()

    def scatter(self, out: torch.Tensor, parts: Tensors, root: int) -> None:
        """Copy ``parts[i]`` of rank ``root`` to ``out`` of rank i."""
        with Flat(out, reads=False) as flat:
            self.group.scatter([_bytes(part) for part in parts], bytes_of(flat), root, _described(out))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.group.barrier()

    def _combine(self, flat: torch.Tensor, op: ReduceOp) -> None:
        """All-reduce with an operator of PyTorch: each rank combines one slice."""
        bounds = [flat.numel() * rank // self.ranks for rank in range(self.ranks + 1)]
        slices = [flat.view(-1)[low:high] for low, high in pairwise(bounds)]
        mine = slices[self.rank]
        received = [torch.empty_like(mine) for _ in slices]
        self.all_to_all(received, slices, f"all_reduce({name_of(op)}, {flat.numel()})")
        mine.copy_(combine_all(received, op))
        total = mine.clone()
        self.group.all_to_all(
            [bytes_of(total)] * self.ranks, [bytes_of(part) for part in slices], f"all_reduce({name_of(op)})"
        )


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return bytes_of(contiguous(tensor))


def _described(tensor: torch.Tensor) -> str:
    return f"{tensor.numel()} x {str(tensor.dtype).removeprefix('torch.')}"


def _uneven(tensor: torch.Tensor, ranks: int) -> bool:
    return bool(tensor.dim() == 0 or tensor.shape[0] % ranks)


def _by_dtype(tensors: Tensors) -> list[list[torch.Tensor]]:
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_dtype.setdefault(tensor.dtype, []).append(tensor)
    return list(by_dtype.values())


def _rows(data: np.ndarray, tensor: torch.Tensor, sizes: Sequence[int], ranks: int, which: str) -> list[np.ndarray]:
    """The parts of a tensor with the bytes ``data``: ``sizes`` rows each, equal if it is empty."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        if rows % ranks:
            raise ArgumentError(
                f"Tensor's dim 0 does not divide equally across group size: {rows} rows of the {which} over {ranks} "
                "ranks; pass split sizes"
            )
        sizes = [rows // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != rows:
        raise ArgumentError(
            f"Split sizes doesn't match total dim 0 size: {list(sizes)} for {rows} rows of the {which}, {ranks} ranks"
        )
    width = data.size // rows if rows else 0
    ends = np.cumsum([0, *sizes]) * width
    return [data[low:high] for low, high in pairwise(ends)]
