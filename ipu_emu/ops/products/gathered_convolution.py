"""Gathered convolution: products with a matrix of the windows, for short rows and for gradients of few pixels.

Operands are stored with the batch innermost, [C, H, W, N]: gathering a row of the matrix is then one long copy per
image row, and the product with the [M, C kh kw] weights has the storage order of the result.

    forward          weights [M, C kh kw]  x  columns [C kh kw, rows OW N]  =  y [M, rows OW N]
    data gradient    transposed weights [C kh kw, M]  x  dy  =  columns, which are added to dx
    weight gradient  dy [M, rows OW N]  x  transposed columns  =  dw [M, C kh kw], added up over the blocks

Rows of the output are taken in blocks, so that the columns of one block stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcl.kernels.jit import jit
from ipu_emu.ops.codegen.compiled_call import relocation
from ipu_emu.ops.codegen.gemm import gemm, gemm_workspace
from ipu_emu.ops.core import Call, call_chain
from ipu_emu.ops.core.kernel_helpers import view
from ipu_emu.ops.core.sliding_windows import Windows

_Array = NDArray[Any]

# Columns: the windows of a block of output rows gathered into a matrix, and the adjoint of that


def gather_columns(x: _Array, columns: _Array, windows: Windows, first: int) -> Call:
    """columns[c, i, j, row, w, n] = x[c, (first + row) sh - ph + i dh, w sw - pw + j dw, n], 0 outside x."""
    (sh, sw), (dh, dw), (ph, pw) = windows.strides, windows.dilations, windows.pads
    rows, width = columns.shape[3:5]
    calls: list[Call] = [partial(columns.fill, 0)] if _reaches_out(windows) else []
    for i in range(windows.kernel[0]):
        y = first * sh - ph + i * dh
        top, bottom = positions_inside(windows.input[0], rows, sh, y)
        for j in range(windows.kernel[1]):
            shift = j * dw - pw
            low, high = positions_inside(windows.input[1], width, sw, shift)
            if bottom > top and high > low:
                source = x[:, y + top * sh :: sh, shift + low * sw :: sw][:, : bottom - top, : high - low]
                calls.append(relocation(source, columns[:, i, j, top:bottom, low:high]))
    return call_chain(*calls)


def _reaches_out(windows: Windows) -> bool:
    """Whether windows reach beyond the image."""
    last = [
        (size - 1) * stride - pad + (taps - 1) * dilation
        for size, stride, pad, taps, dilation in zip(
            windows.output, windows.strides, windows.pads, windows.kernel, windows.dilations, strict=True
        )
    ]
    return any(windows.pads) or any(end >= size for end, size in zip(last, windows.input, strict=True))


def positions_inside(in_width: int, width: int, stride: int, shift: int) -> tuple[int, int]:
    """Output positions [low, high) whose input position w stride + shift lies in [0, in_width)."""
    low = 0 if shift >= 0 else -(shift // stride)
    high = (in_width - 1 - shift) // stride + 1 if in_width > shift else 0
    return min(low, width), min(high, width)


#: For the compiled kernel below.
_positions_inside = jit(positions_inside)


@jit
def scatter_columns(columns: NDArray[Any], x: NDArray[Any], numbers: tuple[int, ...]) -> None:
    """The adjoint of ``gather_columns``: add every element of columns to the element of x that it was copied from.

    x is [C H, W N]; columns is [C kh kw rows, OW N]: a row of either is one image row of all samples.
    """
    height, batch, rows, first, kh, kw, sh, sw, ph, pw, dh, dw = numbers
    in_width, width = x.shape[1] // batch, columns.shape[1] // batch
    for line in range(columns.shape[0]):
        k = line // rows
        y = (first + line % rows) * sh - ph + k // kw % kh * dh
        shift = k % kw * dw - pw
        low, high = _positions_inside(in_width, width, sw, shift)
        if y < 0 or y >= height or high <= low:
            continue
        target = x[k // (kh * kw) * height + y]
        run = (high - low) * batch if sw == 1 else batch
        for w in range(low, low + 1 if sw == 1 else high):
            source = columns[line, w * batch : w * batch + run]
            part = target[(w * sw + shift) * batch : (w * sw + shift) * batch + run]
            for n in range(run):
                part[n] += source[n]


@jit
def add_bias(y: _Array, bias: _Array) -> None:
    """Add ``bias`` [M] to the rows of ``y`` [M, n]."""
    for m in range(y.shape[0]):
        b = bias[m]
        for i in range(y.shape[1]):
            y[m, i] += b


#: The most elements of the gathered columns of one block: 1 MiB of float32, half of a typical L2 cache; of weight
#: gradients, whose results would be added up over the blocks, 4 MiB.
_BLOCK, _WEIGHT_BLOCK = 1 << 18, 1 << 20


class Gathered:
    """The calls of one convolution: ``batch`` images, ``weights`` [M, C, kh, kw], in ``groups`` groups, float32."""

    def __init__(self, windows: Windows, batch: int, weights: tuple[int, ...], groups: int = 1) -> None:
        self.windows, self.batch, self.groups = windows, batch, groups
        self.filters, self.depth, self.channels = weights[0], prod(weights[1:]), groups * weights[1]
        self._filters = self.filters // groups
        self.line = windows.output[1] * batch
        self.bare = windows.is_pointwise

    # Scratch, in float32 elements; operands of halves are converted before

    def workspace(self, *, half: bool) -> list[int]:
        rows = self._rows(_BLOCK)
        return [self._columns(rows), *self._products(rows, lambda pixels: (self._filters, self.depth, pixels))]

    def data_workspace(self, *, half: bool) -> list[int]:
        rows = self._rows(_BLOCK)
        return [self._columns(rows), *self._products(rows, lambda pixels: (self.depth, self._filters, pixels))]

    def weights_workspace(self, *, half: bool) -> list[int]:
        rows = self._rows(_WEIGHT_BLOCK)
        single = self.groups == 1 and rows >= self.windows.output[0]
        products = self._products(rows, lambda pixels: (self._filters, pixels, self.depth))
        return [self._columns(rows), 0 if single else self.filters * self.depth, *products]

    def _rows(self, elements: int) -> int:
        """Output rows per block, of at most so many ``elements``."""
        row = self.groups * self.depth * self.line
        return max(1, min(self.windows.output[0], elements // max(row, 1)))

    def _columns(self, rows: int) -> int:
        return 0 if self.bare else self.groups * self.depth * rows * self.line

    def _products(self, rows: int, shape: Callable[[int], tuple[int, int, int]]) -> list[int]:
        """The scratch of a product of ``shape(pixels)`` for each block."""
        sizes = {min(rows, self.windows.output[0] - first) for first in range(0, self.windows.output[0], rows)}
        workspaces = [gemm_workspace(*shape(count * self.line), self.groups, half=False) for count in sizes]
        return [max(parts) for parts in zip(*workspaces, strict=True)]

    # Calls

    def forward(self, x: _Array, w: _Array, bias: _Array | None, y: _Array, scratch: Sequence[_Array]) -> list[Call]:
        weights = self._matrices(w)
        steps: list[Call] = []
        for columns, part, gather_block, _ in self._blocks(x, y, scratch[0], _BLOCK):
            steps += [*gather_block, *gemm(weights, columns, part, scratch[1:])]
        if bias is not None:
            steps.append(
                partial(add_bias, view(y.transpose(1, 2, 3, 0), (self.filters, y.size // self.filters)), bias)
            )
        return steps

    def data_gradient(self, g: _Array, w: _Array, dx: _Array, scratch: Sequence[_Array]) -> list[Call]:
        """dx: the product of the transposed weights with dy, scattered."""
        weights = self._matrices(w).transpose(0, 2, 1)
        steps: list[Call] = [] if self.bare else [partial(dx.transpose(1, 2, 3, 0).fill, 0)]
        for columns, part, _, scatter_block in self._blocks(dx, g, scratch[0], _BLOCK):
            steps += [*gemm(weights, part, columns, scratch[1:]), *scatter_block]
        return steps

    def weight_gradient(self, g: _Array, x: _Array, dw: _Array, scratch: Sequence[_Array]) -> list[Call]:
        """dw: the product of dy with the transposed columns, added up over the blocks in their order."""
        total = self._matrices(dw)
        steps: list[Call] = []
        for columns, part, gather_block, _ in self._blocks(x, g, scratch[0], _WEIGHT_BLOCK):
            product = view(scratch[1][: dw.size], total.shape) if steps else total
            steps += [*gather_block, *gemm(part, columns.transpose(0, 2, 1), product, scratch[2:])]
            if product is not total:
                steps.append(partial(np.add, total, product, total))
        return steps

    def _matrices(self, w: _Array) -> _Array:
        return view(w, (self.groups, self._filters, self.depth))

    def _blocks(
        self, x: _Array, y: _Array, scratch: _Array, elements: int
    ) -> Iterator[tuple[_Array, _Array, list[Call], list[Call]]]:
        """(columns, y of the block as matrices per group, gather, scatter) for every block.

        The images of a pointwise convolution have the layout of the columns.
        """
        x, rows_at_a_time = x.transpose(1, 2, 3, 0), self._rows(elements)
        pixels = self.windows.output[0] * self.line
        matrices = view(y.transpose(1, 2, 3, 0), (self.groups, self._filters, pixels))
        for first in range(0, self.windows.output[0], rows_at_a_time):
            rows = min(rows_at_a_time, self.windows.output[0] - first)
            part = slice(first * self.line, (first + rows) * self.line)
            if self.bare:
                yield view(x, (self.groups, self.depth, pixels))[:, :, part], matrices[:, :, part], [], []
                continue
            columns = scratch[: self._columns(rows)]
            by_lines = view(columns, (self.groups * self.depth * rows, self.line))
            taps = (x.shape[0], *self.windows.kernel, rows, self.windows.output[1], self.batch)
            gather = gather_columns(x, columns.reshape(taps), self.windows, first)
            lines = view(x, (x.shape[0] * x.shape[1], x.shape[2] * self.batch))
            numbers = (self.windows.input[0], self.batch, rows, first, *self.windows.numbers)
            scatter = partial(scatter_columns, by_lines, lines, tuple(map(int, numbers)))
            yield (
                columns.reshape(self.groups, self.depth, rows * self.line),
                matrices[:, :, part],
                [gather],
                [scatter],
            )
