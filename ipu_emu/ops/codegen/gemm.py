"""Gemm: the calls that multiply two (batches of) matrices of any storage order.

    b that no step changes                    b is copied into panels once, before the first step
    rows of a and columns of b in memory,     dot products: 16 partial sums, and one tree (see ``dot_kernel``)
    and few of either
    many rows                                 both are copied into panels, the larger one a group at a time;
                                              contiguous rows of a may be read in place
    all others                                operands are read in place, or copied if neighbours of a row are not
                                              neighbours in memory
    integers and DOUBLE                       plain loops

All but dot products add the depths in ascending order, each with one fused multiply-add, or for DOUBLE a product and
a sum. The choice between the two orders depends only on shapes, strides, element types and on whether a step changes
b, so that every processor computes the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.ops.codegen.blocked_matmul import Blocked, blocked_workspace
from ipu_emu.ops.codegen.compiled_call import Call, offsets, relocation, turned_relocation
from ipu_emu.ops.codegen.compiled_call import call as bound_call
from ipu_emu.ops.codegen.fused_store import FusedStore
from ipu_emu.ops.codegen.held_copies import HeldCopies
from ipu_emu.ops.codegen.llvm_compiler import LANES, vector_width
from ipu_emu.ops.codegen.matmul_calls import Operands, dot_calls, product_call
from ipu_emu.ops.codegen.matmul_kernel import block_rows, row_blocks
from ipu_emu.ops.codegen.packed_matrix import PackedMatrix, held_matrix, lanes_within, tile_starts
from ipu_emu.ops.codegen.panel_packing import BLOCK, panels_of_columns

_Array = NDArray[Any]

#: The number of rows from which copying b into panels is faster: of b that is stored by rows, and by columns. 16 and
#: 64 rows times 1024 x 1024 that come from memory: 86 and 117 GFLOP/s in place, 52 and 103 in panels; stored by
#: columns, 64 rows: 84 by dot products, 114 in panels.
_MANY, _MANY_BY_COLUMNS = 80, 24
#: Results have fewer columns than this if dot products compute them whatever the number of rows.
_NARROW = 2 * LANES
#: Products with fewer rows and columns than this copy nothing.
_FEW = 16
#: Rows of b (depths) that are processed at a time if b is read in place; half as many of rows of a page or more,
#: which the processor prefetches if they are few: 16 rows times 768 x 3072 take two thirds of the time.
_DEPTH, _PAGE = 64, 4096
#: The most rows of products whose b is copied only once: 512 rows gain 5 %.
_MOST_ROWS = 1024
#: Registers of results that hide the latency of additions.
_TOGETHER = 8


def gemm_workspace(m: int, k: int, n: int, batch: int, *, half: bool) -> list[int]:
    """float32 elements of scratch: for the copies or panels of a and of b."""
    if batch > 1:
        widest = batch * k * max(m, n)
        return [widest if half else 0, widest]
    small = min(m, n) < 2 * vector_width()
    if k == 0 or (min(m, n) < _FEW and not half):
        return [0, 0]
    # If y is stored by columns, its transpose is computed, with a and b exchanged.
    panels = blocked_workspace(m, k, n)
    if half:
        panels[0] = max(panels[0], k * max(m, n))
        panels[1] = max(panels[1], k * max(m, n) if small else 0)
    return panels


def gemm(
    a: _Array,
    b: _Array,
    y: _Array,
    scratch: Sequence[_Array],
    bias: _Array | None = None,
    *,
    wide: bool = True,
    held: HeldCopies | None = None,
    store: FusedStore | None = None,
) -> list[Call]:
    """The calls that set ``y`` [..., m, n] to ``a`` [..., m, k] times ``b`` [..., k, n], plus ``bias``.

    Leading axes are equal or 1. The bias is float32 and has a number per column of y, or, if it is not ``wide``, per
    row. If no step changes b, ``held`` keeps its copy, and ``store`` may be a function of y to store instead.
    """
    if y.size == 0:
        return []
    if a.size == 0:
        sums = np.zeros(1, np.float32) if bias is None else bias if wide else bias[:, None]
        return [partial(np.copyto, y, sums, casting="same_kind")]
    if held is not None and fits_strips(a, b, y):
        return held_matrix(b, held).product(a, y, bias, wide=wide, once=True, store=store)
    assert store is None
    if y.dtype not in (np.float32, np.float16):
        return _by_loops(a, b, y, bias, wide)
    if y.strides[-1] != y.itemsize and y.strides[-2] == y.itemsize and y.shape[-1] > 1:
        a, b, y = (np.swapaxes(array, -1, -2) for array in (b, a, y))
        wide = not wide
    if prod(y.shape[:-2]) == 1:
        a, b, y = (array.reshape(array.shape[-2:]) for array in (a, b, y))
    elif not all(_is_batch_of(y, array) for array in (a, b, y)):
        parts = [(_matrix_of(y, a, i), _matrix_of(y, b, i), y[i]) for i in range(len(y))]
        return [call for part in parts for call in gemm(*part, scratch, bias, wide=wide)]
    return _Product(_merged(a), _merged(b), _merged(y), scratch, bias, wide).calls()


def fits_strips(a: _Array, b: _Array, y: _Array) -> bool:
    """Whether a product can read a copy of b in strips, and has so few rows that copying b takes long."""
    matrices = a.ndim == b.ndim == y.ndim == 2 and PackedMatrix.fits(b.shape[1])
    return matrices and a.dtype == np.float32 and y.strides[1] == y.itemsize and len(a) <= _MOST_ROWS


class _Product(Operands):
    """The product of matrices, or of batches of matrices with one leading axis."""

    def calls(self) -> list[Call]:
        m, n = self.y.shape[-2:]
        if self._is_by_dots():
            return self._by_dots()
        in_rows = self.y.strides[-1] == self.y.itemsize
        many = m >= (_MANY_BY_COLUMNS if self._has_columns() and self.b.shape[-2] >= LANES else _MANY)
        if self.y.ndim == 2 and in_rows and n >= 2 * vector_width() and (many or self.y.dtype == np.float16):
            blocked = Blocked(self.a, self.b, self.y, self.scratch, self.bias, self.wide)
            if blocked.fits():
                return blocked.calls()
        return self._in_place()

    # Dot products

    def _has_columns(self) -> bool:
        """Whether rows of a and columns of b are neighbours in memory, and rows of b are not."""
        return {array.dtype for array in (self.a, self.b, self.y)} == {np.dtype(np.float32)} and (
            self.a.strides[-1] == self.b.strides[-2] == 4 and (self.b.strides[-1] != 4 or self.b.shape[-1] == 1)
        )

    def _is_by_dots(self) -> bool:
        m, n = self.y.shape[-2:]
        few = self.y.ndim == 3 or m < _MANY_BY_COLUMNS or n < _NARROW
        return self._has_columns() and self.b.shape[-2] >= LANES and few and not self._turns()

    def _turns(self) -> bool:
        """Whether the matrices of a batch of b, stored by columns, are copied into panels."""
        k, n = self.b.shape[-2:]
        columns = self.b.ndim == 3 and self.b.strides[-2] == self.b.itemsize != self.b.strides[-1]
        several = self.y.shape[-2] > 1 and self.y.strides[-1] == self.y.itemsize
        return columns and several and k % BLOCK == 0 and n % _NARROW == 0

    def _by_dots(self) -> list[Call]:
        """The operand with more rows is in the outer loop; each of its rows is then read once."""
        a, b, y = self.a, self.b, self.y
        if a.shape[-2] < b.shape[-1]:
            a, b, y = np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2), np.swapaxes(y, -1, -2)
        return [*dot_calls(a, b, y), *_biased(self.y, self.bias, self.wide)]

    # Depths in ascending order

    def _in_place(self) -> list[Call]:
        """Read operands where they are, but for FLOAT16, and where rows are not contiguous."""
        if self._is_faster_turned():
            return self._turned()
        calls: list[Call] = []
        a, b, y = self.a, self.b, self.y
        if a.dtype == np.float16:
            a = self.scratch[0][: a.size].reshape(a.shape)
            if self.a.strides[-1] != self.a.itemsize:
                a = np.swapaxes(a.reshape(np.swapaxes(self.a, -1, -2).shape), -1, -2)
            calls.append(relocation(self.a, a))
        if self._turns():
            return [*calls, *self._by_turned_panels(a)]
        if b.dtype == np.float16 or (b.strides[-1] != 4 and b.shape[-1] > 1):
            enough = self.scratch[1].size >= b.size  # a rare small product has none
            b = (self.scratch[1][: b.size] if enough else np.empty(b.size, np.float32)).reshape(b.shape)
            calls.append(_copy(self.b, b))
        if y.strides[-1] != y.itemsize and y.shape[-1] > 1:
            y = np.empty(y.shape, y.dtype)
        calls += self._by_product(a, b, y)
        return calls if y is self.y else [*calls, _copy(y, self.y)]

    def _is_faster_turned(self) -> bool:
        """Whether columns of a are vectors where rows of b are not, or are short."""
        (m, n), k = self.y.shape[-2:], self.b.shape[-2]
        columns = self.a.dtype == np.float32 == self.b.dtype and self.a.strides[-2] == 4 and m > 1
        in_rows = self.b.strides[-1] == 4 or n == 1
        short = n <= LANES and 2 * n <= m and k >= 2 * LANES
        return columns and (short if in_rows else not self._turns())

    def _turned(self) -> list[Call]:
        """Compute the transpose of y."""
        a, b, y = (np.swapaxes(array, -1, -2) for array in (self.b, self.a, self.y))
        target = y if y.strides[-1] == y.itemsize else np.empty(y.shape, y.dtype)
        calls = _Product(a, b, target, self.scratch, self.bias, not self.wide)._by_product(a, b, target)
        return calls if target is y else [*calls, _copy(target, y)]

    def _by_turned_panels(self, a: _Array) -> list[Call]:
        """Copy each matrix of the batch of b, stored by columns, into panels."""
        batch, k, n = self.b.shape
        tile = 2 * vector_width()
        panels = self.scratch[1][: self.b.size]
        function = panels_of_columns(tile, self.b.dtype == np.float16)
        pack = bound_call(
            function, self.b, panels, n // tile, k, self.b.strides[-1], batch, self.b.strides[0], k * n * 4
        )
        starts = offsets(np.arange(n // tile) * k * tile * 4)
        return [pack, *self._by_product(a, panels.reshape(batch, k, n), self.y, starts)]

    def _by_product(self, a: _Array, b: _Array, y: _Array, starts: _Array | None = None) -> list[Call]:
        """``starts`` are the offsets of the panels of b, if b is packed."""
        (m, k), n = a.shape[-2:], b.shape[-1]
        lanes = lanes_within(n)
        vectors = 2 if starts is not None else _vectors(min(m, block_rows()), n // lanes)
        tiles = tile_starts(n, vectors * lanes)
        row = b.strides[-2] if k > 1 else 4 * n
        depths = _DEPTH if row < _PAGE or starts is not None else _DEPTH // 2
        common: dict[str, Any] = {
            "bias": self.bias,
            "wide": self.wide,
            "x": b,
            "from": offsets(tiles * 4) if starts is None else starts,
            "at": offsets(tiles * y.itemsize),
            "x_step": row if starts is None else 4 * vectors * lanes,
            "tiles": len(tiles),
            "vectors": vectors,
            "lanes": lanes,
            # Overlapping tiles would add to y twice.
            "depth_chunk": depths if n % (vectors * lanes) == 0 and y.dtype == np.float32 else k,
            "batch": y.shape[0] if y.ndim == 3 else 1,
            "x_batch": b.strides[0] if b.ndim == 3 and b.shape[0] > 1 else 0,
            "w_batch": a.strides[0] if a.ndim == 3 and a.shape[0] > 1 else 0,
            "y_batch": y.strides[0] if y.ndim == 3 else 0,
        }
        common |= {"w_row": a.strides[-2], "w_step": a.strides[-1], "w_block": None}
        return [
            product_call(y[..., first:, :], k, count, rows, first, w=a[..., first:, :], **common)
            for first, count, rows in row_blocks(m)
        ]


def _copy(source: _Array, target: _Array) -> Call:
    return turned_relocation(source, target) or relocation(source, target)


def _vectors(rows: int, most: int) -> int:
    """Registers in a row of a tile: two, or for few rows as many as hide the latency of additions."""
    vectors = 1
    while 2 * vectors <= min(max(_TOGETHER // rows, 2), most):
        vectors *= 2
    return vectors


# Integers and DOUBLE


def _by_loops(a: _Array, b: _Array, y: _Array, bias: _Array | None, wide: bool) -> list[Call]:
    if y.dtype != np.float64:
        product = partial(np.matmul, a, b, y)  # of integers: exact
    else:
        a, b = (np.broadcast_to(array, (*y.shape[:-2], *array.shape[-2:])) for array in (a, b))
        product = partial(_multiply, a, b, y)
    return [product, *_biased(y, bias, wide)]


def _biased(y: _Array, bias: _Array | None, wide: bool) -> list[partial[Any]]:
    """Add the bias to a finished ``y``."""
    return [] if bias is None else [partial(np.add, y, bias if wide else bias[:, None], y)]


def _multiply(a: _Array, b: _Array, y: _Array) -> None:
    """y = a b of DOUBLE, depths in ascending order."""
    for index in np.ndindex(y.shape[:-2]):
        double_product(a[index], b[index], y[index])


@jit
def double_product(a: _Array, b: _Array, y: _Array) -> None:
    """y [m, n] = a [m, k] b [k, n]."""
    for m in range(y.shape[0]):
        for n in range(y.shape[1]):
            y[m, n] = 0
        for k in range(a.shape[1]):
            factor = a[m, k]
            for n in range(y.shape[1]):
                y[m, n] += factor * b[k, n]


# Batches


def _is_batch_of(y: _Array, array: _Array) -> bool:
    """Whether ``array`` has one matrix, or one for each matrix of ``y`` in leading axes that can be merged."""
    sizes, strides = array.shape[:-2], array.strides[:-2]
    merges = all(strides[i] == strides[i + 1] * sizes[i + 1] for i in range(len(sizes) - 1))
    return prod(sizes) == 1 or (merges and sizes == y.shape[:-2])


def _matrix_of(y: _Array, array: _Array, index: int) -> _Array:
    """The part of ``array`` for ``y[index]``."""
    return array[index % len(array)] if array.ndim == y.ndim else array


def _merged(array: _Array) -> _Array:
    if array.ndim <= 3:
        return array
    shape = (prod(array.shape[:-2]), *array.shape[-2:])
    strides = (array.strides[-3], *array.strides[-2:])
    return np.lib.stride_tricks.as_strided(array, shape, strides)
