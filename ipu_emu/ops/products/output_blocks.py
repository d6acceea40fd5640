"""Output blocks: the calls of products whose output is cut into blocks, and the weights packed for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import call, offsets, relocation
from ipu_emu.ops.codegen.matmul_calls import product_call
from ipu_emu.ops.codegen.matmul_kernel import ROWS
from ipu_emu.ops.codegen.packed_matrix import lanes_within
from ipu_emu.ops.codegen.panel_packing import BLOCK, panels_of_columns, panels_of_taps
from ipu_emu.ops.core.op_definition import Call

__all__ = ["OutputBlocks", "packed_rows", "packed_taps", "product_calls", "whole_blocks"]

_Array = NDArray[Any]

#: The most taps that one kernel copies, each by instructions of its own.
_MOST_TAPS = 25


class OutputBlocks:
    """Offsets of the tiles of the output, in the image and in the output, row by row."""

    def __init__(self, rows: int, line: int, image_row: int, out_row: int, start: int, most: int = 2) -> None:
        """A tile is up to ``most`` vectors, which have fewer lanes than the processor's if a line is shorter."""
        self.lanes = lanes_within(line)
        self.vectors = 1
        while 2 * self.vectors <= most and 2 * self.vectors * self.lanes <= line:
            self.vectors *= 2
        size = self.vectors * self.lanes
        places = list(range(0, line - size + 1, size)) + ([line - size] if line % size else [])
        self.per_row = len(places)
        row, place = np.arange(rows)[:, None], np.array(places, np.int64)
        self.origins = offsets(start + row * image_row + place * 4)
        self.out_row, self.row, self.place = out_row, row, place
        self.places = self.at(4)

    def at(self, itemsize: int) -> NDArray[np.int64]:
        """Byte offsets of the tiles in an output of elements of ``itemsize`` bytes."""
        return offsets(self.row * self.out_row + self.place * itemsize)


def product_calls(
    image: _Array,
    packed: _Array,
    y: _Array,
    bias: _Array | None,
    tiles: OutputBlocks,
    steps: NDArray[np.int64],
    chunk: int,
) -> list[Call]:
    """The calls that compute ``y`` [made, ...]: whole blocks of rows, then the remaining rows.

    The weights are packed [blocks, k, ROWS], or as they are stored [made, k].
    """
    blocks, left = divmod(y.shape[0], ROWS)
    calls: list[Call] = []
    strides: dict[str, Any] = {"w_row": 4, "w_step": 4 * ROWS, "w_block": 4 * ROWS * len(steps)}
    in_rows = packed.ndim == 2
    if in_rows:
        strides = {"w_row": packed.strides[0], "w_step": 4, "w_block": None}
    common: dict[str, Any] = {
        "x": image,
        "from": tiles.origins,
        "at": tiles.at(y.itemsize),
        "step": steps,
        "bias": bias,
        "wide": False,
        "tiles": len(tiles.origins),
        "vectors": tiles.vectors,
        "lanes": tiles.lanes,
        "y_row": y.strides[0],
        "tile_chunk": chunk,
        **strides,
    }
    for first, count, rows in ((0, blocks, ROWS), (blocks * ROWS, 1, left)):
        if count and rows:
            weights = packed[first if in_rows else first // ROWS :]
            calls.append(product_call(y[first:], len(steps), count, rows, first, w=weights, **common))
    return calls


def packed_rows(matrix: _Array, scratch: _Array) -> tuple[_Array, list[Call]]:
    """``matrix`` [m, k] as [blocks, k, ROWS] in float32."""
    m, k = matrix.shape
    packed = scratch[: whole_blocks(m) * k].reshape(-1, k, ROWS)
    blocks, left = divmod(m, ROWS)
    steps: list[Call] = []
    if blocks and k % BLOCK == 0:
        function = panels_of_columns(ROWS, matrix.dtype == np.float16)
        steps.append(call(function, matrix, packed, blocks, k, matrix.strides[0], 1, 0, 0))
    elif blocks:
        steps.append(relocation(matrix[: blocks * ROWS].reshape(blocks, ROWS, k), packed[:blocks].transpose(0, 2, 1)))
    if left:
        steps.append(relocation(matrix[blocks * ROWS :], packed[blocks, :, :left].T))
    return packed, steps


def packed_taps(w: _Array, taps: list[tuple[int, int]], scratch: _Array) -> tuple[_Array, list[Call]]:
    """``w`` [m, c, kh, kw] as [blocks of c, m and tap, ROWS] in float32."""
    made, channels = w.shape[:2]
    packed = scratch.reshape(-1, made, len(taps), ROWS)
    blocks, left = divmod(channels, ROWS)
    steps: list[Call] = []
    whole = w.flags.c_contiguous and blocks and len(taps) <= _MOST_TAPS
    if whole:
        places = tuple(i * w.shape[3] + j for i, j in taps)
        function = panels_of_taps(ROWS, places, w.dtype == np.float16)
        steps.append(call(function, w, packed, blocks, made, w.strides[1], w.strides[0]))
    for number, (i, j) in enumerate(taps):
        if blocks and not whole:
            source = w[:, : blocks * ROWS, i, j].reshape(made, blocks, ROWS)
            assert np.shares_memory(source, w)
            steps.append(relocation(source, packed[:blocks, :, number].transpose(1, 0, 2)))
        if left:
            steps.append(relocation(w[:, blocks * ROWS :, i, j], packed[blocks, :, number, :left]))
    return packed, steps


def whole_blocks(count: int) -> int:
    """``count`` rounded up to whole blocks of rows."""
    return -(-count // ROWS) * ROWS
