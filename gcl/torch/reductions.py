"""Reductions: implements PyTorch's reduce operators by gcl's kernels, or by PyTorch on slices of a tensor.

Both combine contributions in the same fixed balanced tree over the rank, so that the result has the same bits on all
ranks, however they are spread over hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

from gcl.core.operators import Operator
from gcl.errors import ArgumentError
from gcl.torch.tensors import REDUCED

#: Combines two tensors.
Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_Op: Any = ReduceOp.RedOpType

_OPERATORS: dict[Any, Operator] = {
    _Op.SUM: Operator.ADD,
    _Op.AVG: Operator.MEAN,
    _Op.PRODUCT: Operator.MUL,
    _Op.MIN: Operator.MIN,
    _Op.MAX: Operator.MAX,
}
#: Operators of bool, which has no arithmetic: a sum is the logical or, a product the logical and.
_OF_BOOL: dict[Any, Operator] = {
    _Op.SUM: Operator.LOGICAL_OR,
    _Op.PRODUCT: Operator.LOGICAL_AND,
    _Op.MIN: Operator.LOGICAL_AND,
    _Op.MAX: Operator.LOGICAL_OR,
    _Op.BAND: Operator.LOGICAL_AND,
    _Op.BOR: Operator.LOGICAL_OR,
}
_COMBINES: dict[Any, Combine] = {
    _Op.SUM: torch.add,
    _Op.AVG: torch.add,
    _Op.PREMUL_SUM: torch.add,
    _Op.PRODUCT: torch.mul,
    _Op.MIN: torch.minimum,
    _Op.MAX: torch.maximum,
    _Op.BAND: torch.bitwise_and,
    _Op.BOR: torch.bitwise_or,
    _Op.BXOR: torch.bitwise_xor,
}
_BITWISE = (_Op.BAND, _Op.BOR, _Op.BXOR)
_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
#: Dtypes for which PyTorch lacks arithmetic on CPUs, and the dtype of the same size that is used instead.
_UNSIGNED = {torch.uint16: torch.int16, torch.uint64: torch.int64}


def name_of(op: ReduceOp) -> str:
    """The name of ``op``, as in SUM."""
    return str(op.op.name)


def check_operator(op: ReduceOp, dtype: torch.dtype) -> None:
    """Raise ArgumentError if PyTorch defines no ``op`` for ``dtype``."""
    kind = op.op
    floating = dtype.is_floating_point or dtype.is_complex
    if kind not in _COMBINES:
        raise ArgumentError(
            f"reduce operator {name_of(op)} is not supported; use {', '.join(k.name for k in _COMBINES)}"
        )
    if kind in _BITWISE and floating:
        raise ArgumentError(f"Cannot use ReduceOp.{name_of(op)} with {dtype}; it takes integers and bool")
    if kind in (_Op.MIN, _Op.MAX) and dtype.is_complex:
        raise ArgumentError(f"all_reduce does not support ReduceOp.{name_of(op)} on complex tensors")
    if kind in (_Op.AVG, _Op.PREMUL_SUM) and dtype is torch.bool:
        raise ArgumentError(
            f"Cannot use ReduceOp.{name_of(op)} with {dtype}; use SUM, which says whether any is true"
        )
    if dtype in _UNSIGNED and kind in (_Op.MIN, _Op.MAX, _Op.AVG):
        raise ArgumentError(f"all_reduce does not support ReduceOp.{name_of(op)} of {dtype}; use a signed type")
    if dtype.itemsize == 1 and floating:
        raise ArgumentError(
            f"a reduction of {dtype} is not defined for CPUs; it can be sent, gathered and scattered: reduce "
            "tensor.to(torch.float16)"
        )


def operator_of(op: ReduceOp, dtype: torch.dtype) -> Operator | None:
    """The operator of gcl's kernels for ``op``, None if PyTorch combines the contributions."""
    if dtype is torch.bool:
        return _OF_BOOL.get(op.op)
    return _OPERATORS.get(op.op) if dtype in REDUCED else None


def combine_of(op: ReduceOp, dtype: torch.dtype) -> Combine:
    """The function that combines two tensors of ``dtype``."""
    combine = _COMBINES[op.op]
    signed = _UNSIGNED.get(dtype)
    if signed is None:
        return combine
    return lambda left, right: combine(left.view(signed), right.view(signed)).view(dtype)


def combine_all(tensors: Sequence[torch.Tensor], op: ReduceOp) -> torch.Tensor:
    """The ``tensors`` of all ranks combined in a balanced tree, neighbours first."""
    combine, level = combine_of(op, tensors[0].dtype), list(tensors)
    while len(level) > 1:
        pairs = [combine(*pair) for pair in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[2 * len(pairs) :]
    if op.op == _Op.AVG:
        divides = level[0].dtype.is_floating_point or level[0].dtype.is_complex
        return torch.div(level[0], len(tensors), rounding_mode=None if divides else "trunc")
    return level[0]


def real_view(tensor: torch.Tensor, op: ReduceOp) -> torch.Tensor:
    """A complex ``tensor`` as pairs of real numbers, which sums treat alike; any other ``tensor`` itself."""
    if tensor.dtype in _COMPLEX and op.op in (_Op.SUM, _Op.AVG):
        return torch.view_as_real(tensor.resolve_conj())
    return tensor
