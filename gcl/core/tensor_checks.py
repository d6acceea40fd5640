"""Tensor checks: conditions on the tensors of a collective, and the report of refused calls to the other ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from gcl.errors import ArgumentError
from gcl.kernels.copies import start_of
from gcl.kernels.dtypes import type_tag

#: One tensor [local replicas, ...], or a list or tuple of them that travel in one transfer.
Tensors = TypeVar("Tensors", np.ndarray, list[np.ndarray])


class Refusals:
    """A ``with`` block around checks: an ArgumentError goes to ``refuse``, any other exception to ``fail``.

    After an ArgumentError the call was not started; after another exception, such as an interrupt, that is unknown.
    """

    def __init__(self, refuse: Callable[[ArgumentError], None], fail: Callable[[BaseException], None]) -> None:
        self._refuse, self._fail = refuse, fail

    def __enter__(self) -> None:
        """Do nothing: the work is done at the end of the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ArgumentError):
            self._refuse(error)
        elif error is not None:
            self._fail(error)


def check_tensor(x: np.ndarray, local: int) -> None:
    """Raise ArgumentError unless ``x`` is a valid tensor [``local`` replicas, ...]."""
    if not isinstance(x, np.ndarray):
        raise ArgumentError(f"the tensor is of type {type(x).__name__}; give a numpy array [local replicas, ...]")
    if x.ndim < 1 or x.shape[0] != local:
        raise ArgumentError(
            f"the tensor has shape {list(x.shape)}; its leading axis must be the "
            f"{local} local replicas, as communicator.empty(shape) makes it"
        )
    if not x.flags.c_contiguous:
        raise ArgumentError("the tensor is not C-contiguous; pass np.ascontiguousarray(x)")
    type_tag(x.dtype)


def check_flat(x: np.ndarray, local: int) -> None:
    """Raise ArgumentError unless ``x`` is a valid tensor [``local`` replicas, n]."""
    check_tensor(x, local)
    if x.ndim != 2:
        raise ArgumentError(
            f"Input tensor to replicatedReduceScatter must have rank 1, but had rank {x.ndim - 1}; "
            "flatten each replica's tensor"
        )


def check_slices(x: np.ndarray, size: int) -> None:
    """Raise ArgumentError unless each replica has a slice in ``x`` for each of ``size`` members of its group."""
    if x.ndim < 2 or x.shape[1] != size:
        raise ArgumentError(
            f"the tensor has shape {list(x.shape)}; an all-to-all needs [local replicas, {size}, ...]: "
            "one slice for each member of the group"
        )


def check_output(out: np.ndarray, shape: tuple[int, ...], x: np.ndarray, *, in_place: bool, alone: bool) -> None:
    """Raise ArgumentError unless ``out`` can hold a result of ``shape``, computed from ``x``.

    ``in_place``: ``out`` may be ``x``; ``alone``: groups have one member, so that no other rank reads ``x``.
    """
    if out is not x:
        check_tensor(out, x.shape[0])
    if not out.flags.writeable:
        raise ArgumentError("out is read-only; give a writable tensor")
    if out.shape != shape or out.dtype != x.dtype:
        raise ArgumentError(
            f"out has shape {list(out.shape)} and dtype {out.dtype}; this collective needs "
            f"{list(shape)} and {x.dtype}"
        )
    if np.may_share_memory(out, x) and not (start_of(out) == start_of(x) and (in_place or alone)):
        raise ArgumentError(
            "out overlaps the input, which other ranks may still read; "
            f"give another out{', or the input itself' if in_place else ''}"
        )


def check_place(x: np.ndarray, own: np.ndarray, out: np.ndarray) -> None:
    """Raise ArgumentError if ``x`` lies in ``out`` elsewhere than at ``own``, where this rank's shard goes."""
    if np.may_share_memory(x, out) and start_of(x) != start_of(own):
        raise ArgumentError(
            "x is a part of the shared tensor that other ranks write to; give the part of this rank's replicas, "
            "out[offset : offset + local replicas], or a separate tensor"
        )


def dims_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """``shape`` as a tuple; raise ArgumentError if it is not a shape."""
    try:
        dims = tuple(map(index, shape)) if isinstance(shape, Sequence) else (index(shape),)
    except TypeError:
        dims = (-1,)
    if min(dims, default=0) < 0:
        raise ArgumentError(f"shape {shape!r} is not valid; sizes are whole numbers of at least 0")
    return dims


def dtype_of(dtype: DTypeLike) -> np.dtype[Any]:
    """``dtype`` as a numpy dtype; raise ArgumentError if collectives do not support it."""
    try:
        numpy_dtype: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise ArgumentError(f"{dtype!r} is not a dtype; give a dtype such as 'float32'") from None
    type_tag(numpy_dtype)
    return numpy_dtype
