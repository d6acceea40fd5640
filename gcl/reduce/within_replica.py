"""Within a replica: collectives among the IPUs of each replica, over the shards that they hold.

    x [local replicas, IPUs, ...]            replica 0                replica 1
                                        IPU 0   IPU 1            IPU 0   IPU 1
    input                               1 2     10 20            3 4     30 40
    all_reduce_within_replica           11 22   11 22            33 44   33 44
    reduce_scatter_within_replica       11      22               33      44

All IPUs of a replica belong to one process, so no data leaves it and other ranks need not call. Contributions combine
in the balanced tree over the IPUs, half types in float32 with one rounding, as between replicas. Each function also
takes a list of tensors; all of them are checked before the first one is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gcl.core.operators import Operator
from gcl.core.tensor_checks import Tensors
from gcl.errors import ArgumentError
from gcl.kernels.dtypes import type_tag
from gcl.reduce.reduction import new_scratch, recipe, reduce_range


def all_reduce_within_replica(x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None) -> Tensors:
    """Combine ``x`` [local replicas, IPUs, ...] over the IPUs of each replica; every IPU gets the result.

    ``out`` (default: a new tensor) may be ``x`` itself. Returns ``out``.
    """
    if isinstance(x, list | tuple):
        pairs = _pairs(x, out, op, lambda tensor: tensor.shape)
        return [all_reduce_within_replica(tensor, op, out=to) for tensor, to in pairs]
    name = _checked(x, op)
    out = _output(x, x.shape, out)
    if name is Operator.LOCAL:
        out[...] = x
        return out
    count = x[0, 0].size if len(x) else 0
    for inputs, outputs in zip(_addresses(x), _addresses(out), strict=True):
        _reduce(inputs, outputs, 0, count, name, x.dtype)
    return out


def reduce_scatter_within_replica(x: Tensors, op: str = Operator.ADD, *, out: Tensors | None = None) -> Tensors:
    """Combine ``x`` [local replicas, IPUs, n]; IPU q gets fragment q: [local replicas, IPUs, ceil(n / IPUs)].

    The end is padded with zeros.
    """
    if isinstance(x, list | tuple):
        pairs = _pairs(x, out, op, _scattered)
        return [reduce_scatter_within_replica(tensor, op, out=to) for tensor, to in pairs]
    name = _checked(x, op)
    out = _output(x, _scattered(x), out)
    (_, ipus, count), width = x.shape, out.shape[2]
    for inputs, outputs, rows in zip(_addresses(x), _addresses(out), zip(x, out, strict=True), strict=True):
        for ipu in range(ipus):
            start, stop = min(count, ipu * width), min(count, (ipu + 1) * width)
            rows[1][ipu, stop - start :] = 0
            if name is Operator.LOCAL:
                rows[1][ipu, : stop - start] = rows[0][ipu, start:stop]
            else:
                # the kernel writes element i at address + i
                to = outputs[ipu : ipu + 1] - ipu * width * x.itemsize
                _reduce(inputs, to, start, stop, name, x.dtype)
    return out


def all_gather_within_replica(x: Tensors, *, out: Tensors | None = None) -> Tensors:
    """Join the shards ``x`` [local replicas, IPUs, ...] of each replica: [local replicas, IPUs, IPUs, ...]."""
    if isinstance(x, list | tuple):
        return [all_gather_within_replica(tensor, out=to) for tensor, to in _pairs(x, out, Operator.LOCAL, _gathered)]
    _checked(x, Operator.LOCAL)
    out = _output(x, _gathered(x), out)
    out[...] = x[:, np.newaxis]
    return out


def _scattered(x: np.ndarray) -> tuple[int, ...]:
    """The shape of the result of a reduce-scatter of ``x``; ArgumentError unless each IPU holds a vector."""
    if x.ndim != 3:
        raise ArgumentError(
            f"Input tensor to replicatedReduceScatter must have rank 1, but had rank {x.ndim - 2}; "
            "flatten each IPU's tensor"
        )
    local, ipus, count = x.shape
    return local, ipus, -(-count // ipus)


def _gathered(x: np.ndarray) -> tuple[int, ...]:
    local, ipus, *shape = x.shape
    return (local, ipus, ipus, *shape)


def _pairs(
    tensors: list[np.ndarray],
    outs: list[np.ndarray] | None,
    op: str,
    shape: Callable[[np.ndarray], tuple[int, ...]],
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each tensor of a list with its output tensor; ArgumentError if any of them is not valid."""
    outputs: Sequence[np.ndarray | None] = [None] * len(tensors) if outs is None else outs
    if not isinstance(outputs, list | tuple) or len(outputs) != len(tensors):
        raise ArgumentError(f"x is a list of {len(tensors)} tensors; give a list of the same number of arrays as out")
    for x in tensors:
        _checked(x, op)
    return [(x, _output(x, shape(x), out)) for x, out in zip(tensors, outputs, strict=True)]


def _reduce(
    inputs: np.ndarray, outputs: np.ndarray, start: int, stop: int, name: Operator, dtype: np.dtype[np.generic]
) -> None:
    """Combine elements [start, stop) at the addresses ``inputs`` into those at ``outputs``."""
    how = recipe(name, (1,) * len(inputs), dtype, dtype, len(inputs))
    reduce_range(how, inputs, outputs, len(outputs), start, stop, new_scratch())


def _addresses(x: np.ndarray) -> np.ndarray:
    """Address of each IPU's part of ``x`` [local, IPUs, ...]: int64 [local, IPUs]."""
    local, ipus = x.shape[:2]
    step = x.nbytes // max(1, local * ipus)
    starts: np.ndarray = x.ctypes.data + step * np.arange(local * ipus, dtype=np.int64)
    return starts.reshape(local, ipus)


def _checked(x: np.ndarray, op: str) -> Operator:
    if not isinstance(x, np.ndarray) or x.ndim < 2 or x.shape[1] < 1:
        description = f"shape {list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__
        raise ArgumentError(f"{description} is not a tensor of replicas; give an array [local replicas, IPUs, ...]")
    if not x.flags.c_contiguous:
        raise ArgumentError("the tensor is not C-contiguous; pass np.ascontiguousarray(x)")
    type_tag(x.dtype)
    return Operator.parse(op, x.dtype)


def _output(x: np.ndarray, shape: tuple[int, ...], out: np.ndarray | None) -> np.ndarray:
    if out is None:
        return np.empty(shape, x.dtype)
    if not isinstance(out, np.ndarray):
        raise ArgumentError(f"out is {out!r}; give an array {list(shape)} of {x.dtype}, or leave it out")
    if not out.flags.writeable:
        raise ArgumentError("out is read-only; give a writable tensor")
    if out.shape != shape or out.dtype != x.dtype or not out.flags.c_contiguous:
        raise ArgumentError(
            f"out has shape {list(out.shape)} and dtype {out.dtype}; this collective needs {list(shape)} and "
            f"{x.dtype}, C-contiguous"
        )
    if np.may_share_memory(out, x) and not (out.shape == x.shape and out.ctypes.data == x.ctypes.data):
        raise ArgumentError("out overlaps the input, which is read while out is written; give another out")
    return out
