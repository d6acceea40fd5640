"""Packed matrix: a matrix copied into strips of columns once, and multiplied from the left many times.

b [k, n]  ->  strips [n / tile, k, tile]          y [m, n] = a [m, k] b        m small, as in a recurrence
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import Call, offsets, relocation
from ipu_emu.ops.codegen.compiled_call import call as bound_call
from ipu_emu.ops.codegen.fused_store import FusedStore
from ipu_emu.ops.codegen.held_copies import HeldCopies
from ipu_emu.ops.codegen.llvm_compiler import LANES, vector_width
from ipu_emu.ops.codegen.matmul_calls import product_call
from ipu_emu.ops.codegen.matmul_kernel import row_blocks
from ipu_emu.ops.codegen.panel_packing import BLOCK, panels_of_columns, panels_of_rows

_Array = NDArray[Any]

#: Bytes of the strips that are multiplied by all rows before the next strips: part of a typical L2 cache.
_CHUNK = 1 << 18
#: Bytes of a cache line.
_LINE = 64


def lanes_within(line: int, most: int | None = None) -> int:
    """Numbers in a register, or in ``most`` lanes, for lines of ``line`` numbers."""
    lanes = most or vector_width()
    while lanes > line:
        lanes //= 2
    return lanes


def tile_starts(n: int, tile: int) -> NDArray[np.int64]:
    """The start of each tile; the last one may overlap the one before."""
    starts = np.arange(0, n - tile + 1, tile)
    return starts if n % tile == 0 else np.append(starts, n - tile)


def packing_calls(matrix: _Array, panel: _Array, width: int) -> list[Call]:
    """The calls that copy ``matrix`` [k, strips * width] into strips."""
    k, strips = matrix.shape[0], matrix.shape[1] // width
    if not strips:
        return []
    half = matrix.dtype == np.float16
    if matrix.strides[1] == matrix.itemsize:
        return [bound_call(panels_of_rows(width, half), matrix, panel, strips, k, matrix.strides[0])]
    if matrix.strides[0] == matrix.itemsize and k % BLOCK == 0:
        return [bound_call(panels_of_columns(width, half), matrix, panel, strips, k, matrix.strides[1], 1, 0, 0)]
    target = panel.reshape(strips, k, width).transpose(1, 0, 2)
    shape = (k, strips, width)
    strides = (matrix.strides[0], matrix.strides[1] * width, matrix.strides[1])
    return [relocation(np.lib.stride_tricks.as_strided(matrix, shape, strides), target)]


class PackedMatrix:
    """``b`` [k, n] with at least a tile of columns; ``packing`` are the calls that fill ``strips``."""

    def __init__(self, b: _Array, strips: _Array) -> None:
        (self.k, n), self.tile = b.shape, 2 * vector_width()
        self.starts = tile_starts(n, self.tile)
        self.strips, tiled = strips[: self.size(*b.shape)], n // self.tile * self.tile
        self.packing = packing_calls(b[:, :tiled], self.strips[: self.k * tiled], self.tile)
        if tiled < n:
            self.packing += packing_calls(b[:, n - self.tile :], self.strips[self.k * tiled :], self.tile)

    @staticmethod
    def fits(n: int) -> bool:
        return n >= 2 * LANES

    @staticmethod
    def size(k: int, n: int) -> int:
        """float32 elements of the strips."""
        tile = 2 * vector_width()
        return k * -(-n // tile) * tile

    def product(
        self,
        a: _Array,
        y: _Array,
        bias: _Array | None = None,
        *,
        wide: bool = True,
        add: bool = False,
        once: bool = False,
        store: FusedStore | None = None,
    ) -> list[Call]:
        """The calls that set ``y`` to ``a`` b + ``bias``, or ``add`` a b to it.

        The bias has a number per column, or per row if it is not ``wide``. Rows of y are contiguous. With ``add`` n
        must be a multiple of a tile. If b is multiplied only ``once`` a step, it comes from memory: a few strips are
        read at a time, and the next ones are requested meanwhile. ``store`` is a function of y to store instead.
        """
        assert not add or self.starts[-1] % self.tile == 0
        common: dict[str, Any] = {
            "bias": bias,
            "wide": wide,
            "x": self.strips,
            "from": offsets(np.arange(len(self.starts)) * self.k * self.tile * 4),
            "at": offsets(self.starts * y.itemsize),
            "x_step": 4 * self.tile,
            "tiles": len(self.starts),
            "w_row": a.strides[0],
            "w_step": a.strides[1],
            "w_block": None,
            "add": int(add),
            "store": store,
        }
        strip = 4 * self.k * self.tile
        ahead: dict[str, Any] = {}
        if once:
            common["tile_chunk"] = chunk = min(max(_CHUNK // strip, 1), len(self.starts))
            # Two blocks of rows request a cache line of each row of a strip.
            ahead = {"next": self.strips.ctypes.data + chunk * strip, "next_row": _LINE, "next_tile": strip}
            ahead |= {"next_block": strip // 2, "next_tiles": 2 * len(self.starts)}
        calls: list[Call] = []
        for first, count, rows in row_blocks(len(a)):
            calls.append(product_call(y[first:], self.k, count, rows, first, w=a[first:], **common, **ahead))
            ahead = {}
        return calls


def held_matrix(b: _Array, held: HeldCopies) -> PackedMatrix:
    """``b``, which no step changes: its strips are copied with the other ``held`` copies, not by ``packing``."""
    strips = held.copy(b, "strips", PackedMatrix.size(*b.shape), lambda strips: PackedMatrix(b, strips).packing)
    matrix = PackedMatrix(b, strips)
    matrix.packing = []
    return matrix
