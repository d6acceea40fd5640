"""Array functions: formulas as functions on arrays, by the kernels that compute them in fused ops.

log = function("log");  y = log(x);  log(x, out=y);  call = log.bound(x, out=y)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import Call
from ipu_emu.ops.codegen.row_passes import Operand, RowPass, bound_rows
from ipu_emu.ops.core.formulas import Formula, FormulaBuilder, named
from ipu_emu.ops.core.op_definition import call_chain

_Array = NDArray[Any]


class ArrayFunction:
    """A formula with its parameters, called as numpy's ufuncs are: operands broadcast, of any storage order.

    It computes in float32, in float64 if an operand is float64 or an integer, and rounds the result to the type of
    ``out`` once.
    """

    def __init__(self, formula: Formula, parameters: Sequence[Any] = ()) -> None:
        self.formula, self.parameters = formula, tuple(parameters)

    def __call__(self, *operands: Any, out: _Array | None = None) -> Any:
        traced = next((x for x in operands if _overrides(x)), None)
        if traced is not None:
            return traced.__array_ufunc__(self, "__call__", *operands, out=None if out is None else (out,))
        arrays = [np.asarray(x) for x in operands]
        if out is None:
            out = np.empty(np.broadcast_shapes(*(x.shape for x in arrays)), _result_type(operands))
        self.bound(*operands, out=out)()
        return out if out.ndim else out[()]

    def bound(self, *operands: Any, out: _Array) -> Call:
        """The call that sets ``out``; it allocates nothing."""
        if out.size == 0:
            return lambda: None
        kind = np.float64 if any(_is_wide(x) for x in operands) else np.float32
        values = [np.asarray(x, None if isinstance(x, np.ndarray) else kind) for x in operands]
        in_rows = _are_rows([out, *(x for x in values if x.size > 1)])
        order = out if in_rows or _is_dense(out) else np.empty_like(out)
        arrays = [_stored(x, kind, order, in_rows) for x in (*values, out)]
        before = [
            partial(np.copyto, place, x) for place, x in zip(arrays[:-1], values, strict=True) if place is not x
        ]
        after = [] if arrays[-1] is out else [partial(np.copyto, out, arrays[-1], "unsafe")]
        kinds = ["full" if x.size == out.size else "scalar" for x in arrays]
        forms = [Operand.of(name, x) for name, x in zip(kinds, arrays, strict=True)]
        rows, columns = out.shape if in_rows else (1, out.size)
        step = bound_rows(forms, [self._pass(len(values))], arrays, rows, columns)
        return call_chain(*before, step, *after) if before or after else step

    def _pass(self, count: int) -> RowPass:
        body = FormulaBuilder()
        value = self.formula.apply(body, [body("load", index) for index in range(count)], self.parameters)
        body("store", count, value)
        return RowPass(tuple(body.instructions))


@cache
def function(name: str) -> ArrayFunction:
    """The function that ``codegen.functions`` has under this name."""
    return ArrayFunction(named(name))


def _overrides(operand: Any) -> bool:
    return not isinstance(operand, np.ndarray | np.generic) and hasattr(operand, "__array_ufunc__")


def _is_wide(operand: Any) -> bool:
    return isinstance(operand, np.ndarray | np.generic) and operand.dtype not in (np.float32, np.float16)


def _result_type(operands: Sequence[Any]) -> np.dtype[Any]:
    dtype = np.result_type(*operands)
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _are_rows(arrays: Sequence[_Array]) -> bool:
    """Whether all are matrices of one shape that are stored row by row, not all without gaps."""
    shape = arrays[0].shape
    alike = all(x.shape == shape and x.ndim == 2 and x.strides[1] == x.itemsize for x in arrays)
    return alike and not all(x.flags.c_contiguous for x in arrays)


def _is_dense(array: _Array) -> bool:
    order = sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis))
    return array.transpose(order).flags.c_contiguous


def _stored(array: _Array, kind: Any, order: _Array, in_rows: bool) -> _Array:
    """``array`` itself where a kernel can read it beside ``order``, else memory for a copy of it."""
    fits = in_rows or array.size == 1 or (_is_dense(array) and _steps(array) == _steps(order))
    if fits and array.dtype == kind:
        return array
    return np.empty_like(order if array.size > 1 else array, kind)


def _steps(array: _Array) -> list[tuple[int, int]]:
    """(size, elements between neighbours) of each axis."""
    return [(n, step // array.itemsize) for n, step in zip(array.shape, array.strides, strict=True) if n > 1]
