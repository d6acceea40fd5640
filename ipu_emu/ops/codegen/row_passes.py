"""Row passes: kernels that make a few passes over each row of a matrix, with formulas, sums and maxima.

    softmax    pass 1   max m = x
               pass 2   y = exp(x - m), sum s = y
               then     r = 1 / s
               pass 3   y = y r

A kernel is plain data. Operands are

    full      [rows, columns], neighbours in a row       column    one number for each column, of all rows
    row       one number for each row                    scalar    one number

in float32 or half, or all in float64. Instructions make values, numbered from 0 in each pass:

    ("load", operand)          ("number", value)           ("let", name)          a number of this row, see below
    (function, value, ...)     see ``functions``
    ("store", operand, v)      to a full operand           ("gather", operand, v) added to a column operand
    ("sum", name, v)           ("largest", name, v)        over the row, for later passes and for ``then``
    ("define", name, v)        ("put", operand, v)         in ``then``, once for a row: a number, to a row operand

On every processor, sums and maxima have LANES lanes. Lane i takes elements i, i + LANES, ... in ascending order; then
lanes i and i + LANES/2 are added, i and i + LANES/4, and so on; last comes the sum of the elements that do not fill
LANES, in ascending order. A column operand gathers rows in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import call
from ipu_emu.ops.codegen.functions.float32_math import DOUBLE_FUNCTIONS, FUNCTIONS
from ipu_emu.ops.codegen.functions.lane_values import number
from ipu_emu.ops.codegen.llvm_builder import DOUBLE, FLOAT, HALF, Kernel, const, repeat
from ipu_emu.ops.codegen.llvm_compiler import LANES, generated, vector_width

Instruction = tuple[Any, ...]


@dataclass(frozen=True)
class Operand:
    """``kind`` is full, column, row or scalar."""

    kind: str
    half: bool = False
    double: bool = False

    @classmethod
    def of(cls, kind: str, array: NDArray[Any]) -> Operand:
        """The operand for ``array``."""
        return cls(kind, array.dtype == np.float16, array.dtype == np.float64)

    @property
    def itemsize(self) -> int:
        return 2 if self.half else 8 if self.double else 4


@dataclass(frozen=True)
class RowPass:
    """``body`` runs for every element, ``then`` once at the end of the row."""

    body: tuple[Instruction, ...] = ()
    then: tuple[Instruction, ...] = ()


@generated
def row_kernel(operands: tuple[Operand, ...], passes: tuple[RowPass, ...]) -> str:
    """Arguments: the addresses of the operands, bytes of a row of each, of a matrix, then matrices, rows, columns."""
    return _Rows(operands, passes).text()


def bound_rows(
    operands: Sequence[Operand],
    passes: Sequence[RowPass],
    arrays: Sequence[NDArray[Any]],
    rows: int,
    columns: int,
    matrices: int = 1,
) -> Any:
    """The call for these arrays; see ``_strides``. Full operands are [matrices, rows, columns]."""
    function = row_kernel(tuple(operands), tuple(passes))
    for operand, array in zip(operands, arrays, strict=True):
        assert operand == Operand.of(operand.kind, array), (operand, array.dtype)
    pairs = zip(operands, arrays, strict=True)
    strides = [_strides(operand.kind, array, (matrices, rows, columns)) for operand, array in pairs]
    apart = [*(row for _, row in strides), *(matrix for matrix, _ in strides)]
    return call(function, *arrays, *apart, matrices, rows, columns)


def _strides(kind: str, array: NDArray[Any], shape: tuple[int, int, int]) -> tuple[int, int]:
    """Bytes between matrices and between rows of an operand: those of an array of ``shape``, else contiguous."""
    _, rows, columns = shape
    if kind == "full":
        if array.shape == shape:
            return array.strides[0], array.strides[1]
        row = array.strides[0] if array.shape == shape[1:] else array.itemsize * columns
        return row * rows, row
    if kind == "row":
        return array.strides[0] if array.shape == shape[:2] else array.itemsize * rows, array.itemsize
    return array.itemsize * columns if kind == "column" else 0, 0


class _Rows:
    def __init__(self, operands: tuple[Operand, ...], passes: tuple[RowPass, ...]) -> None:
        self.operands, self.passes = operands, passes
        count = len(operands)
        self.kernel = Kernel("row_kernel", 3 * count + 3)
        self.b = self.kernel.b
        self.pointers = [self.kernel.pointer(i) for i in range(count)]
        self.strides, self.apart = (self.kernel.arguments[n * count : (n + 1) * count] for n in (1, 2))
        self.matrices, self.rows, self.columns = self.kernel.arguments[3 * count :]
        double = any(operand.double for operand in operands)
        self.real, self.functions = (DOUBLE, DOUBLE_FUNCTIONS) if double else (FLOAT, FUNCTIONS)
        self.names: dict[str, Any] = {}
        self.lines: list[Any] = []
        self.fixed: dict[int, Any] = {}

    def text(self) -> str:
        for index, operand in enumerate(self.operands):
            if operand.kind == "scalar" and self._is_loaded(index):
                self.fixed[index] = self._load(index, self.pointers[index], 1)
        self.kernel.loop(self.matrices, self.matrix)
        return self.kernel.finish()

    def matrix(self, index: Any) -> None:
        starts = self.moved(self.pointers, self.apart, index)
        self.kernel.loop(self.rows, lambda row: self.row(self.moved(starts, self.strides, row)))

    def moved(self, pointers: list[Any], strides: list[Any], count: Any) -> list[Any]:
        return [self.b.gep(p, [self.b.mul(count, s)]) for p, s in zip(pointers, strides, strict=True)]

    def _is_loaded(self, index: int) -> bool:
        used = [i for p in self.passes for i in (*p.body, *p.then)]
        return ("load", index) in used

    def row(self, lines: list[Any]) -> None:
        self.lines, self.names = lines, {}
        for number_, operand in enumerate(self.operands):
            if operand.kind == "row" and self._is_loaded(number_):
                self.fixed[number_] = self._load(number_, self.lines[number_], 1)
        for row_pass in self.passes:
            if row_pass.body:
                self.elements(row_pass.body)
            self.once(row_pass.then)

    # Elements of a row

    def elements(self, body: tuple[Instruction, ...]) -> None:
        reductions = [i for i in body if i[0] in ("sum", "largest")]
        b, width = self.b, LANES if reductions else vector_width()
        vectored = b.mul(b.sdiv(self.columns, const(width)), const(width))
        totals = []
        for lane_count, start, stop in ((width, const(0), vectored), (1, vectored, self.columns)):
            first = [self._first(i[0], lane_count) for i in reductions]

            def element(i: Any, carried: list[Any], count: int = lane_count) -> list[Any]:
                return self.formula(body, i, carried, count)

            totals.append(repeat(b, stop, first, element, start=start, step=lane_count))
        for (kind, name, _), wide, rest in zip(reductions, *totals, strict=True):
            total = self.kernel.across(wide, partial(self._combined, kind))
            self.names[name] = self._combined(kind, total, rest)

    def _first(self, kind: str, count: int) -> Any:
        value = 0.0 if kind == "sum" else float("-inf")
        return number(value, ir.Constant(self._type(False, count), ir.Undefined))

    def _combined(self, kind: str, x: Any, y: Any) -> Any:
        return self.b.fadd(x, y) if kind == "sum" else self.functions["max"](self.kernel, x, y)

    def formula(self, body: tuple[Instruction, ...], index: Any, carried: list[Any], count: int) -> list[Any]:
        """Emit ``body`` for ``count`` elements from ``index`` on; the new partial sums."""
        values: list[Any] = []
        sums: list[Any] = []
        for kind, *rest in body:
            value = None
            if kind == "load":
                value = self._element(rest[0], index, count)
            elif kind in ("store", "gather"):
                self._store(kind, rest[0], values[rest[1]], index, count)
            elif kind in ("sum", "largest"):
                sums.append(self._combined(kind, carried[len(sums)], values[rest[1]]))
            else:
                value = self._value(kind, rest, values, count)
            values.append(value)
        return sums

    def _value(self, kind: str, rest: list[Any], values: list[Any], count: int) -> Any:
        if kind == "number":
            return number(rest[0], ir.Constant(self._type(False, count), ir.Undefined))
        if kind == "let":
            return self._spread(self.names[rest[0]], count)
        return self.functions[kind](self.kernel, *(values[v] for v in rest))

    def _spread(self, value: Any, count: int) -> Any:
        return self.kernel.splat(value, count) if count > 1 else value

    def _element(self, operand: int, index: Any, count: int) -> Any:
        if self.operands[operand].kind in ("row", "scalar"):
            return self._spread(self.fixed[operand], count)
        size = self.operands[operand].itemsize
        return self._load(operand, self.b.gep(self.lines[operand], [self.b.mul(index, const(size))]), count)

    def _load(self, operand: int, pointer: Any, count: int) -> Any:
        half = self.operands[operand].half
        stored = self.kernel.load(pointer, const(0), self._type(half, count), self.operands[operand].itemsize)
        return self.b.fpext(stored, self._type(False, count)) if half else stored

    def _store(self, kind: str, operand: int, value: Any, index: Any, count: int) -> None:
        half, size = self.operands[operand].half, self.operands[operand].itemsize
        place = self.b.gep(self.lines[operand], [self.b.mul(index, const(size))])
        if kind == "gather":
            value = self.b.fadd(self._load(operand, place, count), value)
        if half:
            value = self.b.fptrunc(value, self._type(True, count))
        self.kernel.store(value, place, const(0), size)

    def _type(self, half: bool, count: int) -> Any:
        kind = HALF if half else self.real
        return ir.VectorType(kind, count) if count > 1 else kind

    # Once for a row

    def once(self, body: tuple[Instruction, ...]) -> None:
        values: list[Any] = []
        for kind, *rest in body:
            value = None
            if kind == "load":
                value = self.fixed[rest[0]]
            elif kind == "define":
                self.names[rest[0]] = values[rest[1]]
            elif kind == "put":
                self._store("store", rest[0], values[rest[1]], const(0), 1)
            else:
                value = self._value(kind, rest, values, 1)
            values.append(value)
