"""Gemm: the calls that multiply two (batches of) matrices of any storage order, FLOAT or FLOAT16, with float32 sums.

    b that no step changes   b is copied into panels once, before the first step
    few rows, or a batch     operands are read in place
    many rows                both are copied into panels, the larger one a group at a time; contiguous rows of a
                             may be read in place
    all other shapes         numpy's product (BLAS), on float32 copies

The choice depends only on shapes, strides and element types, so a product is bitwise reproducible.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.blocked_matmul import Blocked, blocked_workspace
from ipu_emu.ops.codegen.compiled_call import Call, offsets, relocation
from ipu_emu.ops.codegen.compiled_call import call as bound_call
from ipu_emu.ops.codegen.dot_kernel import DOT_COLUMNS, DOT_ROWS
from ipu_emu.ops.codegen.fused_store import FusedStore
from ipu_emu.ops.codegen.held_copies import HeldCopies
from ipu_emu.ops.codegen.llvm_compiler import vector_width
from ipu_emu.ops.codegen.matmul_calls import Operands, dots_call, product_call, whole_and_rest
from ipu_emu.ops.codegen.matmul_kernel import ROWS
from ipu_emu.ops.codegen.packed_matrix import PackedMatrix, held_matrix, tile_starts
from ipu_emu.ops.codegen.panel_packing import BLOCK, panels_of_columns

__all__ = ["fits_strips", "gemm", "gemm_workspace"]

_Array = NDArray[Any]

#: The number of rows from which copying b into panels is faster: of b that is stored by rows, and by columns. 16 and
#: 64 rows times 1024 x 1024 that come from memory: 86 and 117 GFLOP/s in place, 52 and 103 in panels; stored by
#: columns, 64 rows: 84 by dot products, 114 in panels.
_MANY, _MANY_BY_COLUMNS = 80, 24
#: Products with fewer rows and columns than this copy nothing.
_FEW = 16
#: Rows of b (depths) that are processed at a time if b is read in place; half as many of rows of a page or more,
#: which the processor prefetches if they are few: 16 rows times 768 x 3072 take two thirds of the time.
_DEPTH, _PAGE = 64, 4096
#: The most rows of products whose b is copied only once: 512 rows gain 5 %.
_MOST_ROWS = 1024


def gemm_workspace(m: int, k: int, n: int, batch: int, *, half: bool) -> list[int]:
    """float32 elements of scratch: for the copies or panels of a and of b, and for the copy of y."""
    if batch > 1:
        widest = batch * k * max(m, n)
        return [widest if half else 0, widest, batch * m * n if half else 0]
    small = min(m, n) < 2 * vector_width()
    if k == 0 or (min(m, n) < _FEW and not half):
        return [0, 0, 0]
    # If y is stored by columns, its transpose is computed, with a and b exchanged.
    panels = blocked_workspace(m, k, n)
    if half:
        panels[0] = max(panels[0], k * max(m, n))
        panels[1] = max(panels[1], k * max(m, n) if small else 0)
    return [*panels, m * n if half and small else 0]


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
    if y.strides[-1] != y.itemsize and y.strides[-2] == y.itemsize and y.shape[-1] > 1:
        a, b, y = (np.swapaxes(array, -1, -2) for array in (b, a, y))
        wide = not wide
    m, n = y.shape[-2:]
    batch = prod(y.shape[:-2])
    if batch == 1:
        a, b, y = (array.reshape(array.shape[-2:]) if array.size else array for array in (a, b, y))
    unblocked, blocked = _Unblocked(a, b, y, scratch, bias, wide), Blocked(a, b, y, scratch, bias, wide)
    if y.strides[-1] == y.itemsize and n >= vector_width() and m > 1 and (batch == 1 or unblocked.strides_agree()):
        many = m >= (_MANY if not _by_dots(a, b, y) else _MANY_BY_COLUMNS)
        if batch == 1 and (many or y.dtype == np.float16) and n >= 2 * vector_width() and blocked.fits():
            return blocked.calls()
        calls = unblocked.in_place()
        if calls is not None:
            return calls
    return unblocked.by_numpy()


def fits_strips(a: _Array, b: _Array, y: _Array) -> bool:
    """Whether a product can read a copy of b in strips, and has so few rows that copying b takes long."""
    matrices = a.ndim == b.ndim == y.ndim == 2 and PackedMatrix.fits(b.shape[1])
    return matrices and a.dtype == np.float32 and y.strides[1] == y.itemsize and len(a) <= _MOST_ROWS


def _by_dots(a: _Array, b: _Array, y: _Array) -> bool:
    """Whether columns of b and rows of a are whole vectors in memory, so that their dot products need no copies."""
    sizes = {array.dtype for array in (a, b, y)} == {np.dtype(np.float32)}
    adjacent = b.strides[-2] == 4 and b.strides[-1] != 4 and a.strides[-1] == 4
    return sizes and adjacent and a.shape[-1] % vector_width() == 0


class _Unblocked(Operands):
    """The products that do not use panels of both operands."""

    def strides_agree(self) -> bool:
        return all(array.ndim <= 3 or _mergeable(array) for array in (self.a, self.b, self.y))

    # Read in place

    def in_place(self) -> list[Call] | None:
        images: list[_Array] = []
        calls: list[Call] = []
        k, n = self.b.shape[-2:]
        turned = self.b.ndim >= 3 and self.b.strides[-2] == self.b.itemsize and self.b.strides[-1] != self.b.itemsize
        turned = turned and k % BLOCK == 0 and n % (2 * vector_width()) == 0
        for number, array in enumerate((self.a, self.b)):
            if array.dtype == np.float16 and not (turned and number):
                image = self.scratch[number][: array.size].reshape(array.shape)
                if array.strides[-1] != array.itemsize:
                    image = np.swapaxes(image.reshape(np.swapaxes(array, -1, -2).shape), -1, -2)
                calls.append(relocation(_merged(array), _merged(image)))
                array = image
            images.append(_merged(array))
        a, b, y = *images, _merged(self.y)
        if turned:
            return [*calls, *self._by_turned_panels(a, b, y)]
        if b.strides[-1] == 4:
            return [*calls, *self._by_product(a, b, y)]
        if _by_dots(a, b, y):
            return [*calls, *self._by_dots(a, b, y)]
        return None

    def _by_turned_panels(self, a: _Array, b: _Array, y: _Array) -> list[Call]:
        """Copy each matrix of the batch of b, stored by columns, into panels."""
        batch, k, n = b.shape
        tile = 2 * vector_width()
        panels = self.scratch[1][: b.size]
        function = panels_of_columns(tile, b.dtype == np.float16)
        pack = bound_call(function, b, panels, n // tile, k, b.strides[-1], batch, b.strides[0], k * n * 4)
        starts = offsets(np.arange(n // tile) * k * tile * 4)
        return [pack, *self._by_product(a, panels.reshape(batch, k, n), y, starts)]

    def _by_product(self, a: _Array, b: _Array, y: _Array, starts: _Array | None = None) -> list[Call]:
        """Read a in place; ``starts`` are the offsets of the panels of b, if b is packed."""
        (m, k), n = a.shape[-2:], b.shape[-1]
        vectors = 2 if n >= 2 * vector_width() else 1
        tiles = tile_starts(n, vectors * vector_width())
        depths = _DEPTH if b.strides[-2] < _PAGE or starts is not None else _DEPTH // 2
        common: dict[str, Any] = {
            "bias": self.bias,
            "wide": self.wide,
            "x": b,
            "from": offsets(tiles * 4) if starts is None else starts,
            "at": offsets(tiles * y.itemsize),
            "x_step": b.strides[-2] if starts is None else 4 * vectors * vector_width(),
            "tiles": len(tiles),
            "vectors": vectors,
            # Overlapping tiles would add to y twice.
            "depth_chunk": depths if n % (vectors * vector_width()) == 0 and y.dtype == np.float32 else k,
            "batch": y.shape[0] if y.ndim == 3 else 1,
            "x_batch": b.strides[0] if b.ndim == 3 and b.shape[0] > 1 else 0,
            "w_batch": a.strides[0] if a.ndim == 3 and a.shape[0] > 1 else 0,
            "y_batch": y.strides[0] if y.ndim == 3 else 0,
        }
        blocks, left = divmod(m, ROWS)
        calls: list[Call] = []
        strides = {"w_row": a.strides[-2], "w_step": a.strides[-1]}
        if blocks:
            calls.append(product_call(y, k, blocks, ROWS, w=a, w_block=None, **strides, **common))
        if left:
            tail, low = a[..., blocks * ROWS :, :], y[..., blocks * ROWS :, :]
            calls.append(product_call(low, k, 1, left, blocks * ROWS, w=tail, w_block=None, **strides, **common))
        return calls

    def _by_dots(self, a: _Array, b: _Array, y: _Array) -> list[Call]:
        """The operand with more rows is in the outer loop; each of its rows is then read once."""
        whole = y
        if a.shape[-2] < b.shape[-1]:
            a, b, y = np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2), np.swapaxes(y, -1, -2)
        calls: list[Call] = []
        for rows in whole_and_rest(a.shape[-2], DOT_ROWS):
            for columns in whole_and_rest(b.shape[-1], DOT_COLUMNS):
                calls.append(dots_call(a[..., rows, :], b[..., :, columns], y[..., rows, columns]))
        return [*calls, *self._biased(whole)]

    def _biased(self, y: _Array) -> list[Call]:
        """Add the bias to a finished float32 ``y``."""
        if self.bias is None:
            return []
        return [partial(np.add, y, self.bias if self.wide else self.bias[:, None], y)]

    # By numpy

    def by_numpy(self) -> list[Call]:
        calls: list[Call] = []
        images = []
        for number, array in enumerate((self.a, self.b, self.y)):
            if array.dtype == np.float16:
                image = self.scratch[number][: array.size].reshape(array.shape)
                if number < 2:
                    calls.append(relocation(array, image))
                array = image
            images.append(array)
        a, b, y = images
        calls += [partial(np.matmul, a, b, y), *self._biased(y)]
        if y is not self.y:
            calls.append(relocation(y, self.y))
        return calls


def _mergeable(array: _Array) -> bool:
    """Whether the leading axes of ``array`` can be merged into one."""
    sizes, strides = array.shape[:-2], array.strides[:-2]
    return all(strides[i] == strides[i + 1] * sizes[i + 1] for i in range(len(sizes) - 1))


def _merged(array: _Array) -> _Array:
    if array.ndim <= 3:
        return array
    shape = (prod(array.shape[:-2]), *array.shape[-2:])
    strides = (array.strides[-3], *array.strides[-2:])
    return np.lib.stride_tricks.as_strided(array, shape, strides)
