"""Direct convolution: products that read the windows of a padded image where they are stored, without a gather.

Operands are stored [C, H, W, N]. A stride s splits the padded image into s x s planes, so that for each row of output
every tap of the kernel reads contiguous elements:

    stride 2    plane 0   x0 x2 x4 ...      tap 0 reads plane 0 from 0, tap 1 plane 1 from 0, tap 2 plane 0 from 1
                plane 1   x1 x3 x5 ...

    forward          y[m]     = sum over c, i, j of  w[m, c, i, j] x[c, window i, j]        ``product``
    data gradient    dx[c]    = sum over m, i, j of  w[m, c, i, j] dy[m, shifted back]      ``product``, by planes
    weight gradient  dw[m, k] = dy[m] . x[c, window i, j]                                   ``dots``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import call, named_call, offsets, relocation
from ipu_emu.ops.codegen.dot_kernel import DOTS, dot_block, dots
from ipu_emu.ops.codegen.fused_store import FusedStore
from ipu_emu.ops.codegen.llvm_compiler import LANES
from ipu_emu.ops.codegen.matmul_calls import whole_and_rest
from ipu_emu.ops.codegen.packed_matrix import lanes_within
from ipu_emu.ops.codegen.strided_copy import SHORT_RUN, pad
from ipu_emu.ops.core.op_definition import Call
from ipu_emu.ops.core.sliding_windows import Windows
from ipu_emu.ops.products.output_blocks import (
    OutputBlocks,
    dot_blocks,
    output_blocks,
    packed_rows,
    packed_taps,
    product_calls,
    whole_blocks,
)

# Planes: a padded image split by its strides, so that each tap reads contiguous elements


@dataclass(frozen=True)
class PlaneAxis:
    """One axis of the windows: the plane that each tap reads, and the offset in the plane."""

    size: int
    out: int
    stride: int
    before: int
    taps: tuple[tuple[int, int], ...]  # (plane, shift)
    dilation: int = 1

    @classmethod
    def of(cls, windows: Windows, axis: int) -> PlaneAxis:
        stride, dilation = windows.strides[axis], windows.dilations[axis]
        taps = tuple((i * dilation % stride, i * dilation // stride) for i in range(windows.kernel[axis]))
        return cls(windows.input[axis], windows.output[axis], stride, windows.pads[axis], taps, dilation)

    @property
    def reach(self) -> int:
        return max(shift for _, shift in self.taps)

    @property
    def length(self) -> int:
        """The length of every plane."""
        return self.out + self.reach

    def planes(self) -> list[int]:
        return sorted({plane for plane, _ in self.taps})

    def inside(self, plane: int) -> tuple[int, int]:
        """The indices [low, high) of a plane that hold the image, not padding."""
        low = max(0, -((plane - self.before) // self.stride))
        high = min(self.length, (self.before + self.size - 1 - plane) // self.stride + 1)
        return low, max(low, high)

    def place(self, plane: int, index: int) -> int:
        """The index in the image of element ``index`` of a plane."""
        return index * self.stride + plane - self.before


def _padded_plane(
    x: _Array, target: _Array, rows: int, first: int, stride: int, columns: PlaneAxis, plane: int
) -> Call:
    """Copy one plane of ``x`` [C, H, W, N] to ``target`` [C, rows, columns, N]."""
    batch = x.shape[3]
    low, high = columns.inside(plane)
    start = columns.place(plane, low) if high > low else 0
    runs, run = (1, (high - low) * batch) if columns.stride == 1 else (high - low, batch)
    if high <= low:
        runs = run = 0
    return call(
        pad(x.dtype == np.float16, run if run <= SHORT_RUN and runs > 1 else 0),
        x[:, :, start:],
        target,
        x.shape[0],
        rows,
        x.shape[1],
        first,
        stride,
        x.strides[1],
        x.strides[0],
        columns.length * batch,
        low * batch,
        runs,
        run,
        columns.stride * x.strides[2],
    )


_Array = NDArray[Any]

#: Depths from which weights are read in place: 0.12 ms for 96 channels from 576, 0.13 ms with panels; for 144 from 24
#: 0.17 and 0.13 ms.
_LONG = 64
#: The least numbers in a line of the output or of a plane.
LEAST = 4
#: The most of the rows of a kernel that are inside of the image for which others are left out: 3 x 3 images of 256
#: channels by 3 x 3 take 20 % less time.
_WORTH = 0.97
#: The most bytes of weights of which each part of the rows reads some: larger ones come from memory.
_CACHED = 1 << 21
#: Bytes of the image that are processed at a time: half of a typical L2 cache.
CHUNK = 1 << 19


class Direct:
    """The calls of one convolution: ``batch`` images, ``channels`` in, ``filters`` channels out, in all groups."""

    def __init__(self, windows: Windows, batch: int, channels: int, filters: int, groups: int = 1) -> None:
        self.rows, self.columns = PlaneAxis.of(windows, 0), PlaneAxis.of(windows, 1)
        self.batch, self.channels, self.filters, self.groups = batch, channels, filters, groups
        self.depth = channels // groups * windows.kernel[0] * windows.kernel[1]
        self.taps = [(i, j) for i in range(windows.kernel[0]) for j in range(windows.kernel[1])]
        self.line = self.columns.out * batch
        self.bare = windows.is_pointwise and windows.pads == (0, 0)

    #: The most vectors of a tile.
    vectors = 2

    # Applicability

    def fits(self) -> bool:
        """Whether forward and data gradient have lines of at least a short vector."""
        widths = [high - low for low, high in map(self.columns.inside, self.columns.planes())]
        return min(self.line, *(width * self.batch for width in widths)) >= LEAST

    def fits_weights(self) -> bool:
        return self.line % max(lanes_within(self.line, LANES), LEAST) == 0

    # Scratch, in float32 elements

    def _planes(self) -> int:
        count = len(self.rows.planes()) * len(self.columns.planes())
        return count * self.channels * self.rows.length * self.columns.length * self.batch

    def workspace(self, *, half: bool) -> list[int]:
        image = 0 if self.bare and not half else self._planes()
        return [image, whole_blocks(self.filters) * self.depth if self._packs(half=half) else 0, self.filters]

    def _packs(self, *, half: bool) -> bool:
        """Whether the weights are copied into panels: long rows of float32 are read as fast where they are."""
        return half or self.depth < _LONG

    def data_workspace(self, *, half: bool) -> list[int]:
        rows, columns = self.rows, self.columns
        padded = self.filters * (rows.out + 2 * rows.reach) * (columns.out + 2 * columns.reach) * self.batch
        bare = rows.reach == columns.reach == 0 and not half
        plane = self.channels * rows.length * columns.length * self.batch if self._strided() else 0
        return [0 if bare else padded, whole_blocks(self.channels) * self.filters * len(self.taps), plane]

    def weights_workspace(self, *, half: bool) -> list[int]:
        image = 0 if self.bare and not half else self._planes()
        if not half:
            return [image, 0, 0]
        return [image, self.filters * self.rows.out * self.line, self.filters * self.depth]

    def _strided(self) -> bool:
        return self.rows.stride > 1 or self.columns.stride > 1

    # Forward

    def forward(
        self,
        x: _Array,
        w: _Array,
        bias: _Array | None,
        y: _Array,
        scratch: Sequence[_Array],
        store: FusedStore | None = None,
    ) -> list[Call]:
        """``x`` [N, C, H, W], ``w`` [M, C, kh, kw], ``y`` [N, M, OH, OW]; stored with the batch innermost."""
        image, steps = self._image(x, scratch[0])
        weights = w.reshape(self.filters, self.depth)
        if self._packs(half=w.dtype == np.float16):
            weights, pack = packed_rows(weights, scratch[1])
            steps += pack
        bias, widen = self._wide_bias(bias, scratch[2])
        steps += widen
        rows, y = self._rows_at_a_time(self.channels * self.columns.length * 4), y.transpose(1, 2, 3, 0)
        for part, inside in self.parts_of_rows():
            tiles, target = self._tiles(y.itemsize, part), y[:, part.start : part.stop]
            taps, depths = self._tap_offsets(inside), self._depths(inside)
            steps += product_calls(image, weights, target, bias, tiles, taps, rows, store, depths)
        return steps

    def parts_of_rows(self) -> list[tuple[range, range]]:
        """Rows of the output, and the rows of the kernel that are inside of the image for them.

        3 rows of output, 3 of the kernel, padding of 1          0: 1 and 2        1: 0 to 2        2: 0 and 1
        """
        rows, kernel, outputs = self.rows, len(self.rows.taps), range(self.rows.out)
        inside = [
            [i for i in range(kernel) if 0 <= r * rows.stride - rows.before + i * rows.dilation < rows.size] or [0]
            for r in outputs
        ]
        if 4 * self.filters * self.depth > _CACHED or sum(map(len, inside)) > _WORTH * kernel * rows.out:
            return [(outputs, range(kernel))]
        parts = (list(part) for _, part in groupby(outputs, lambda r: inside[r]))
        return [(range(p[0], p[-1] + 1), range(inside[p[0]][0], inside[p[0]][-1] + 1)) for p in parts]

    def _depths(self, kernel_rows: range) -> NDArray[np.int64] | None:
        """The depths of these rows of the kernel in the weights, or None for all."""
        if len(kernel_rows) == len(self.rows.taps):
            return None
        taps = [number for number, (i, _) in enumerate(self.taps) if i in kernel_rows]
        return offsets(np.arange(self.channels // self.groups)[:, None] * len(self.taps) + np.array(taps))

    def _wide_bias(self, bias: _Array | None, scratch: _Array) -> tuple[_Array | None, list[Call]]:
        if bias is None or bias.dtype == np.float32:
            return bias, []
        return scratch[: bias.size], [relocation(bias, scratch[: bias.size])]

    def _tiles(self, itemsize: int, part: range | None = None) -> list[OutputBlocks]:
        """The tiles of ``part`` of the rows of the output, or of all."""
        image_row = self.columns.length * self.batch * 4
        if self.bare:  # rows follow each other in the image and in the output
            return output_blocks(1, self.rows.out * self.line, 0, 0, 0, self.vectors)
        part = range(self.rows.out) if part is None else part
        start = part.start * image_row
        return output_blocks(len(part), self.line, image_row, self.line * itemsize, start, self.vectors)

    def _rows_at_a_time(self, row_bytes: int) -> int:
        """The number of rows to process at a time, of ``row_bytes`` of each sample."""
        return max(1, CHUNK // max(row_bytes * self.batch, 1))

    def _tap_offsets(self, kernel_rows: range | None = None) -> NDArray[np.int64]:
        """Byte offsets into the planes, for each channel and tap, or tap of ``kernel_rows``."""
        high, wide = self.rows.planes(), self.columns.planes()
        places = []
        for i, j in self.taps:
            if kernel_rows is not None and i not in kernel_rows:
                continue
            (row_plane, down), (column_plane, right) = self.rows.taps[i], self.columns.taps[j]
            plane = high.index(row_plane) * len(wide) + wide.index(column_plane)
            places.append((plane * self.channels * self.rows.length + down) * self.columns.length + right)
        channels = np.arange(self.channels // self.groups)[:, None] * self.rows.length * self.columns.length
        return offsets((channels + np.array(places)) * self.batch * 4)

    def _image(self, x: _Array, scratch: _Array) -> tuple[_Array, list[Call]]:
        """The planes of ``x``, and the calls that copy ``x`` to them."""
        x = x.transpose(1, 2, 3, 0)
        if self.bare and x.dtype == np.float32:
            return x, []
        channel = self.rows.length * self.columns.length * self.batch
        planes = [(row, column) for row in self.rows.planes() for column in self.columns.planes()]
        # Every plane reads the same cache lines of x: all planes of a few channels, then of the next ones.
        at_a_time = max(1, CHUNK // max(x.itemsize * x[:1].size, 1)) if len(planes) > 1 else self.channels
        steps: list[Call] = []
        for start in range(0, self.channels, at_a_time):
            part = x[start : start + at_a_time]
            for number, (row_plane, column_plane) in enumerate(planes):
                target = scratch[(number * self.channels + start) * channel :]
                first = row_plane - self.rows.before
                steps.append(
                    _padded_plane(part, target, self.rows.length, first, self.rows.stride, self.columns, column_plane)
                )
        return scratch, steps

    # Gradient of the data

    def data_gradient(self, g: _Array, w: _Array, dx: _Array, scratch: Sequence[_Array]) -> list[Call]:
        g, out = g.transpose(1, 2, 3, 0), dx.transpose(1, 2, 3, 0)
        steps: list[Call] = [partial(dx.fill, 0)] if not self._covers() else []
        down, right = self.rows.reach, self.columns.reach
        height, width = self.rows.out + 2 * down, self.columns.out + 2 * right
        if down or right or g.dtype == np.float16:
            around = PlaneAxis(self.columns.out, self.columns.out + right, 1, right, ((0, 0), (0, right)))
            image = scratch[0]
            steps.append(_padded_plane(g, image, height, -down, 1, around, 0))
        else:
            image = g
        used = 0
        for row_plane in self.rows.planes():
            for column_plane in self.columns.planes():
                taps = [
                    (i, j)
                    for i, j in self.taps
                    if self.rows.taps[i][0] == row_plane and self.columns.taps[j][0] == column_plane
                ]
                packed, pack = self._packed(w, taps, scratch[1][used:])
                used += packed.size
                steps += [
                    *pack,
                    *self._plane(row_plane, column_plane, taps, image, packed, out, scratch[2], height, width),
                ]
        return steps

    def _packed(self, w: _Array, taps: list[tuple[int, int]], scratch: _Array) -> tuple[_Array, list[Call]]:
        """The weights of these taps, as the products of a plane read them."""
        return packed_taps(w, taps, scratch[: whole_blocks(self.channels) * self.filters * len(taps)])

    def _products(
        self,
        image: _Array,
        packed: _Array,
        y: _Array,
        tiles: Sequence[OutputBlocks],
        steps: NDArray[np.int64],
        sizes: tuple[int, int],
    ) -> list[Call]:
        """The products of a plane, from an image of ``sizes``."""
        return product_calls(image, packed, y, None, tiles, steps, self._rows_at_a_time(self.filters * sizes[1] * 4))

    def _covers(self) -> bool:
        """Whether the planes hold every pixel of the image."""
        return all(
            sum(high - low for low, high in map(axis.inside, axis.planes())) == axis.size
            for axis in (self.rows, self.columns)
        )

    def _plane(
        self,
        row_plane: int,
        column_plane: int,
        taps: list[tuple[int, int]],
        image: _Array,
        packed: _Array,
        out: _Array,
        scratch: _Array,
        height: int,
        width: int,
    ) -> list[Call]:
        """The calls that compute the gradient of one plane of the image."""
        (top, bottom), (left, right) = self.rows.inside(row_plane), self.columns.inside(column_plane)
        high, wide = bottom - top, right - left
        if high <= 0 or wide <= 0:
            return []
        first, start = self.rows.place(row_plane, top), self.columns.place(column_plane, left)
        target = out[:, first :: self.rows.stride, start :: self.columns.stride][:, :high, :wide]
        y = target if not self._strided() else scratch[: target.size].reshape(target.shape)
        place = (top * width + left) * self.batch * 4
        tiles = output_blocks(high, wide * self.batch, width * self.batch * 4, y.strides[1], place, self.vectors)
        shifts = [
            (self.rows.reach - self.rows.taps[i][1]) * width + self.columns.reach - self.columns.taps[j][1]
            for i, j in taps
        ]
        steps = (np.arange(self.filters // self.groups)[:, None] * height * width + np.array(shifts)) * self.batch * 4
        calls = self._products(image, packed, y, tiles, offsets(steps), (height, width))
        return calls if y is target else [*calls, relocation(y, target)]

    # Gradient of the weights

    def weight_gradient(self, g: _Array, x: _Array, dw: _Array, scratch: Sequence[_Array]) -> list[Call]:
        image, steps = self._image(x, scratch[0])
        g = g.transpose(1, 2, 3, 0)
        if g.dtype == np.float16:
            wide = scratch[1][: g.size].reshape(g.shape)
            steps.append(relocation(g, wide))
            g = wide
        total = dw.reshape(self.filters, self.depth)
        if dw.dtype == np.float16:
            total = scratch[2][: dw.size].reshape(total.shape)
        steps += self._dots(image, g, total)
        if total.dtype != dw.dtype:
            steps.append(relocation(total, dw.reshape(total.shape)))
        return steps

    def _dots(self, image: _Array, g: _Array, total: _Array) -> list[Call]:
        """``total`` [filters, depth]: every group by itself, in blocks of rows and columns."""
        row = self.columns.length * self.batch * 4
        tiles, size = dot_blocks(self.rows.out, self.line, row, self.line * 4), dot_block()
        both = self.channels * self.columns.length + self.filters * self.columns.out
        chunk = self._rows_at_a_time(4 * both) * tiles.per_row
        taps, filters = self._tap_offsets(), self.filters // self.groups
        plane = self.rows.length * self.columns.length * self.batch * 4
        calls: list[Call] = []
        for start in range(0, len(tiles.origins), chunk):
            part = slice(start, start + chunk)
            for rows in whole_and_rest(filters, size):
                for columns in whole_and_rest(self.depth, size):
                    arguments = {
                        "x": image,
                        "g": g[rows.start :],
                        "out": total[rows.start :, columns],
                        "from": tiles.origins[part],
                        "at": tiles.places[part],
                        "step": taps[columns],
                        "rest": 0,
                        "tiles": len(tiles.origins[part]),
                        "columns": columns.stop - columns.start,
                        "blocks": -(-(rows.stop - rows.start) // size),
                        "g_row": g.strides[0],
                        "out_row": total.strides[0],
                        "out_column": 4,
                        "add": int(start > 0),
                        "batch": self.groups,
                        "x_batch": self.channels // self.groups * plane,
                        "g_batch": filters * g.strides[0],
                        "out_batch": filters * total.strides[0],
                    }
                    height = min(size, rows.stop - rows.start)
                    wide = min(size, columns.stop - columns.start)
                    calls.append(named_call(dots(height, wide, tiles.lanes), DOTS, **arguments))
        return calls
