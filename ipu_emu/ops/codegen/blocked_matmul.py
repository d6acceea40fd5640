"""Blocked matrix product: the larger of two matrices is packed into panels, one group of panels at a time.

    a  [m, k]    strips of a few rows, or in place if its rows are contiguous   y = a b
    b  [k, n]    strips of a tile of columns

The smaller matrix is copied as a whole, once. A group stays in the L2 cache while it is multiplied.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import Call, offsets, relocation
from ipu_emu.ops.codegen.llvm_compiler import vector_width
from ipu_emu.ops.codegen.matmul_calls import Operands, product_call
from ipu_emu.ops.codegen.matmul_kernel import block_rows
from ipu_emu.ops.codegen.packed_matrix import packing_calls, tile_starts

_Array = NDArray[Any]

#: The most bytes of a group of panels of b, and of a group of a together with one of b: half of a typical L2 cache in
#: either case.
_GROUP, _GROUP_BESIDE, _GROUP_OF_ROWS = 1 << 18, 1 << 17, 3 << 15
#: Bytes of a cache line.
_LINE = 64
#: A multiple of a block of rows and of a cache line.
_LINED = 48


def blocked_workspace(m: int, k: int, n: int) -> list[int]:
    """float32 elements of scratch for the panels of a and of b, which may be exchanged."""
    elements = k * (min(m, n) + 2 * vector_width())
    return [max(elements, k * group(k, max(m, n))) for group in (_group_of_rows, _group)]


def _group(k: int, n: int, nbytes: int = _GROUP) -> int:
    """Columns of b in a group, a multiple of a tile."""
    tile = 2 * vector_width()
    return min(max(nbytes // (4 * k * tile), 1), -(-n // tile)) * tile


def _group_of_rows(k: int, m: int) -> int:
    """Rows of a in a group: whole blocks, aligned to a cache line if a is stored by columns."""
    return min(max(_GROUP_OF_ROWS // (4 * k * _LINED), 1) * _LINED, m)


def _groups(count: int, size: int, least: int = 1) -> list[tuple[int, int]]:
    """(start, end) of each group; the last one has at least ``least`` members and may overlap the one before."""
    return [(min(first, count - least), min(first + size, count)) for first in range(0, count, size)]


class Blocked(Operands):
    """A blocked product; ``scratch`` has the size that ``blocked_workspace`` returns."""

    def fits(self) -> bool:
        """Whether adjacent elements in memory are adjacent in a row or in a column of each operand."""
        return all(array.itemsize in array.strides[-2:] for array in (self.a, self.b))

    def calls(self) -> list[Call]:
        """The calls: copy the smaller operand once, then copy and multiply the larger one a group at a time."""
        (m, k), n = self.a.shape, self.b.shape[1]
        rows, columns = [(0, m)], [(0, n)]
        if m < n:
            columns = _groups(n, _group(k, n), 2 * vector_width())
        else:
            rows = _groups(m, _group_of_rows(k, m))
        calls: list[Call] = []
        for index, (first, last) in enumerate(columns):
            calls += self._pack_columns(first, last)
            following = columns[index + 1] if index + 1 < len(columns) else None
            for low, high in rows:
                if not index and not self.in_rows:
                    calls += self._pack_rows(low, high)
                calls += self._multiply(low, high, first, last, following)
        return calls

    def _next(self, columns: tuple[int, int] | None) -> dict[str, Any]:
        """The cache lines to request while the columns before them are multiplied."""
        k, b = self.b.shape[0], self.b
        if columns is None:
            return {}
        first, last = columns
        source, size = b[:, first:last], b.itemsize
        if b.strides[1] == size:
            lines = -(-(last - first) * size // _LINE) + 1
            return {"next": source, "next_row": b.strides[0], "next_tile": _LINE, "next_tiles": lines}
        if b.strides[1] == k * size:
            lines = -(-(last - first) * size // _LINE)
            return {"next": source, "next_row": _LINE, "next_tile": k * _LINE, "next_tiles": lines}
        return {}

    @property
    def in_rows(self) -> bool:
        """Whether rows of a can be read in place as fast as from panels."""
        return self.a.strides[1] == self.a.itemsize and self.a.dtype == np.float32

    def _pack_rows(self, low: int, high: int) -> list[Call]:
        """Copy rows of a: whole blocks into strips, then the remaining rows one by one."""
        k = self.a.shape[1]
        blocked = (high - low) // block_rows() * block_rows()
        calls = packing_calls(self.a[low : low + blocked].T, self.scratch[0][: blocked * k], block_rows())
        if low + blocked < high:
            calls.append(relocation(self.a[low + blocked : high], self._rest(low, high)))
        return calls

    def _rest(self, low: int, high: int) -> _Array:
        """The copies of the remaining rows, which do not fill a block."""
        k, (blocks, left) = self.a.shape[1], divmod(high - low, block_rows())
        return self.scratch[0][blocks * block_rows() * k :][: left * k].reshape(left, k)

    def _pack_columns(self, first: int, last: int) -> list[Call]:
        """Copy columns of b into strips; the last strip starts earlier if the columns do not fill it."""
        k, tile = self.b.shape[0], 2 * vector_width()
        tiled = (last - first) // tile * tile
        calls = packing_calls(self.b[:, first : first + tiled], self.scratch[1][: k * tiled], tile)
        if first + tiled < last:
            calls += packing_calls(self.b[:, last - tile : last], self.scratch[1][k * tiled :][: k * tile], tile)
        return calls

    def _multiply(self, low: int, high: int, first: int, last: int, following: tuple[int, int] | None) -> list[Call]:
        """Compute a part of y from operands in panels; the columns of b that are ``following`` are copied next."""
        k, tile = self.a.shape[1], 2 * vector_width()
        y, bias = self.y[low:high, first:last], self.bias
        if bias is not None:
            bias = bias[first:last] if self.wide else bias[low:high]
        panels, at = _tile_offsets(last - first, tile, 4 * k * tile, y.itemsize)
        common: dict[str, Any] = {
            "bias": bias,
            "wide": self.wide,
            "x": self.scratch[1],
            "from": panels,
            "at": at,
            "x_step": 4 * tile,
            "tiles": len(at),
            "tile_chunk": _group(k, last - first, _GROUP_BESIDE) // tile,
        }
        blocks, left = divmod(high - low, block_rows())
        weights, rest = self.a[low:high], self.a[low + blocks * block_rows() : high]
        strides: list[dict[str, Any]] = [{"w_row": self.a.strides[0], "w_step": 4, "w_block": None}] * 2
        if not self.in_rows:
            weights, rest = self.scratch[0], self._rest(low, high)
            strides = [
                {"w_row": 4, "w_step": 4 * block_rows(), "w_block": 4 * block_rows() * k},
                {"w_row": 4 * k, "w_step": 4, "w_block": None},
            ]
        calls: list[Call] = []
        if blocks:
            ahead = self._next(following)
            calls.append(product_call(y, k, blocks, block_rows(), w=weights, **strides[0], **common, **ahead))
        if left:
            calls.append(
                product_call(
                    y[blocks * block_rows() :], k, 1, left, blocks * block_rows(), w=rest, **strides[1], **common
                )
            )
        return calls


@lru_cache(maxsize=256)  # pure: the groups of a product have one width, and layers repeat
def _tile_offsets(columns: int, tile: int, panel: int, itemsize: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Byte offsets of the tiles of ``columns`` in their panels, and in a row of the result."""
    starts = tile_starts(columns, tile)
    return offsets(np.arange(len(starts)) * panel), offsets(starts * itemsize)
