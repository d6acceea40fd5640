"""Output blocks: the calls of products whose output is cut into blocks, and the weights packed for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import call, offsets, relocation
from ipu_emu.ops.codegen.fused_store import FusedStore
from ipu_emu.ops.codegen.llvm_compiler import LANES
from ipu_emu.ops.codegen.matmul_calls import product_call
from ipu_emu.ops.codegen.matmul_kernel import block_rows, row_blocks
from ipu_emu.ops.codegen.packed_matrix import lanes_within
from ipu_emu.ops.codegen.panel_packing import BLOCK, panels_of_columns, panels_of_taps
from ipu_emu.ops.core.op_definition import Call

_Array = NDArray[Any]

#: The most taps that one kernel copies, each by instructions of its own.
_MOST_TAPS = 25


#: The smallest width of a narrower tile that is faster than a wider one, which computes some results twice.
_NARROW = 8


class OutputBlocks:
    """Offsets of tiles of ``vectors`` registers of ``lanes`` numbers in the image and in the output, row by row."""

    def __init__(
        self, rows: int, lanes: int, vectors: int, places: Sequence[int], image_row: int, out_row: int, start: int
    ) -> None:
        """``places``: the first elements of the tiles of a row; ``image_row``, ``out_row``: bytes from row to row."""
        self.lanes, self.vectors, self.per_row = lanes, vectors, len(places)
        row, place = np.arange(rows)[:, None], np.array(places, np.int64)
        self.origins = offsets(start + row * image_row + place * 4)
        self.out_row, self.row, self.place = out_row, row, place
        self.places = self.at(4)

    def at(self, itemsize: int) -> NDArray[np.int64]:
        """Byte offsets of the tiles in an output of elements of ``itemsize`` bytes."""
        return offsets(self.row * self.out_row + self.place * itemsize)

    def arguments(self, y: _Array) -> dict[str, Any]:
        """The arguments of a product that are those of the tiles of ``y`` [rows, ...]."""
        return {
            "from": self.origins,
            "at": self.at(y.itemsize),
            "wide": False,
            "tiles": len(self.origins),
            "vectors": self.vectors,
            "lanes": self.lanes,
            "y_row": y.strides[0],
        }


def output_blocks(
    rows: int, line: int, image_row: int, out_row: int, start: int, most: int = 2
) -> list[OutputBlocks]:
    """Tiles that cover ``rows`` lines of ``line`` numbers: the widest first, then narrower ones for what is left."""
    return [OutputBlocks(rows, *cut, image_row, out_row, start) for cut in _cuts(line, most)]


def dot_blocks(rows: int, line: int, image_row: int, out_row: int) -> OutputBlocks:
    """Tiles of the lanes of dot products, which fill lines of ``line`` numbers, whatever registers there are."""
    lanes = lanes_within(line, LANES)
    return OutputBlocks(rows, lanes, 1, range(0, line, lanes), image_row, out_row, 0)


def _cuts(line: int, most: int, begin: int = 0) -> list[tuple[int, int, list[int]]]:
    """(lanes, vectors, places) of the tiles from ``begin`` on; a tile is up to ``most`` vectors.

    line 72     32 32 8             (a third tile of 32 would compute 24 results twice)
    line 24     16 8
    line 31     16, and 16 that overlap it
    """
    left = line - begin
    lanes, vectors = lanes_within(max(left, min(line, _NARROW))), 1
    while 2 * vectors <= most and 2 * vectors * lanes <= left:
        vectors *= 2
    size = vectors * lanes
    places, rest = list(range(begin, line - size + 1, size)), left % size
    if rest and size > _NARROW and rest <= (size // 2 if vectors == 1 else size - size // 4):
        return [(lanes, vectors, places), *_cuts(line, most, line - rest)]
    return [(lanes, vectors, places + ([line - size] if rest else []))]


def product_calls(
    image: _Array,
    packed: _Array,
    y: _Array,
    bias: _Array | None,
    tiles: Sequence[OutputBlocks],
    steps: NDArray[np.int64],
    rows_at_a_time: int,
    store: FusedStore | None = None,
    depths: NDArray[np.int64] | None = None,
) -> list[Call]:
    """The calls that compute ``y`` [filters, ...] from ``rows_at_a_time`` rows of the image for all weights.

    The weights are packed [blocks, k, rows], or as they are stored [filters, k]. With ``depths`` only these are used.
    """
    strides: dict[str, Any] = {"w_row": 4, "w_step": 4 * block_rows(), "w_block": 4 * block_rows() * len(steps)}
    in_rows = packed.ndim == 2
    if in_rows:
        strides = {"w_row": packed.strides[0], "w_step": 4, "w_block": None}
    if depths is not None:
        strides["w_at"] = offsets(depths * strides["w_step"])
        strides["w_block"] = strides["w_row"] * block_rows() if in_rows else 4 * block_rows() * packed.shape[1]
    common: dict[str, Any] = {
        "x": image,
        "step": steps,
        "bias": bias,
        "store": store,
        **strides,
    }
    calls = []
    for part in tiles:
        own = common | part.arguments(y) | {"tile_chunk": rows_at_a_time * part.per_row}
        for first, count, rows in row_blocks(y.shape[0]):
            weights = packed[first if in_rows else first // block_rows() :]
            calls.append(product_call(y[first:], len(steps), count, rows, first, w=weights, **own))
    return calls


def packed_rows(matrix: _Array, scratch: _Array) -> tuple[_Array, list[Call]]:
    """``matrix`` [m, k] as [blocks, k, rows of a block] in float32."""
    m, k = matrix.shape
    packed = scratch[: whole_blocks(m) * k].reshape(-1, k, block_rows())
    blocks, left = divmod(m, block_rows())
    steps: list[Call] = []
    if blocks and k % BLOCK == 0:
        function = panels_of_columns(block_rows(), matrix.dtype == np.float16)
        steps.append(call(function, matrix, packed, blocks, k, matrix.strides[0], 1, 0, 0))
    elif blocks:
        steps.append(
            relocation(
                matrix[: blocks * block_rows()].reshape(blocks, block_rows(), k), packed[:blocks].transpose(0, 2, 1)
            )
        )
    if left:
        steps.append(relocation(matrix[blocks * block_rows() :], packed[blocks, :, :left].T))
    return packed, steps


def packed_taps(w: _Array, taps: list[tuple[int, int]], scratch: _Array) -> tuple[_Array, list[Call]]:
    """``w`` [m, c, kh, kw] as [blocks of c, m and tap, rows of a block] in float32."""
    filters, channels = w.shape[:2]
    packed = scratch.reshape(-1, filters, len(taps), block_rows())
    blocks, left = divmod(channels, block_rows())
    steps: list[Call] = []
    in_panels = w.flags.c_contiguous and blocks and len(taps) <= _MOST_TAPS
    if in_panels:
        places = tuple(i * w.shape[3] + j for i, j in taps)
        function = panels_of_taps(block_rows(), places, w.dtype == np.float16)
        steps.append(call(function, w, packed, blocks, filters, w.strides[1], w.strides[0]))
    for number, (i, j) in enumerate(taps):
        if blocks and not in_panels:
            source = w[:, : blocks * block_rows(), i, j].reshape(filters, blocks, block_rows())
            assert np.shares_memory(source, w)
            steps.append(relocation(source, packed[:blocks, :, number].transpose(1, 0, 2)))
        if left:
            steps.append(relocation(w[:, blocks * block_rows() :, i, j], packed[blocks, :, number, :left]))
    return packed, steps


def whole_blocks(count: int) -> int:
    """``count`` rounded up to whole blocks of rows."""
    return -(-count // block_rows()) * block_rows()
