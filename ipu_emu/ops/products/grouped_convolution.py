"""Grouped convolution: direct, with a product per group, or depthwise: a group for each channel.

    y[g, m]  =  sum over c, i, j of  w[g, m, c, i, j] x[g, c, window i, j]

A group has few channels, so that its weights are read where they are stored: packing would cost as much as the
product. All groups are one call. Depthwise convolutions of FLOAT read the image where it is stored, and so do their
gradients; those of FLOAT16 read a padded copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import named_call, relocation
from ipu_emu.ops.codegen.depthwise_kernel import DEPTHWISE, DepthwiseShape, depthwise
from ipu_emu.ops.codegen.depthwise_weights import DEPTHWISE_WEIGHTS, depthwise_weights
from ipu_emu.ops.codegen.fused_store import EXTRAS, FusedStore
from ipu_emu.ops.codegen.matmul_calls import product_call
from ipu_emu.ops.codegen.matmul_kernel import row_blocks
from ipu_emu.ops.core.op_definition import Call
from ipu_emu.ops.core.sliding_windows import Windows
from ipu_emu.ops.products.direct_convolution import LEAST, Direct
from ipu_emu.ops.products.output_blocks import OutputBlocks

_Array = NDArray[Any]


class Grouped(Direct):
    """The calls of a convolution of ``groups`` groups."""

    def __init__(self, windows: Windows, batch: int, channels: int, filters: int, groups: int) -> None:
        super().__init__(windows, batch, channels, filters, groups)
        self.inner, self.outer = channels // groups, filters // groups
        # One row of results needs more vectors at a time to hide the latency of its additions.
        self.vectors = 4 if self.inner == self.outer == 1 else 2
        self.depthwise = self._depthwise_shape(windows)

    def _depthwise_shape(self, windows: Windows) -> DepthwiseShape | None:
        """The shape of a depthwise convolution whose columns fill short vectors, or None."""
        vectors = windows.strides[1] == 1 or self.batch >= LEAST
        if not vectors or not self.inner == self.outer == 1 or windows.dilations != (1, 1):
            return None
        return DepthwiseShape(
            _pair(windows.input),
            _pair(windows.output),
            _pair(windows.kernel),
            _pair(windows.strides),
            _pair(windows.pads),
            self.batch,
        )

    # Scratch, in float32 elements

    def workspace(self, *, half: bool) -> list[int]:
        if self.depthwise and not half:
            return [0, 0, self.filters]
        return [super().workspace(half=half)[0], self.filters * self.depth if half else 0, self.filters]

    def data_workspace(self, *, half: bool) -> list[int]:
        if self.depthwise and not half:
            return [0, 0, 0]
        image, _, plane = super().data_workspace(half=half)
        return [image, self.filters * self.depth, plane]

    def weights_workspace(self, *, half: bool) -> list[int]:
        return [0, 0, 0] if self.depthwise and not half else super().weights_workspace(half=half)

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
        if self.depthwise and w.dtype == np.float32:
            return [self._by_channel(self.depthwise, x, w, y, bias, store)]
        image, steps = self._image(x, scratch[0])
        weights = w.reshape(self.groups, self.outer, self.depth)
        if w.dtype == np.float16:
            wide = scratch[1][: w.size].reshape(weights.shape)
            steps.append(relocation(weights, wide))
            weights = wide
        bias, widen = self._wide_bias(bias, scratch[2])
        channel = self.rows.length * self.columns.length * self.batch * 4
        out, tiles, taps = y.transpose(1, 2, 3, 0), self._tiles(y.itemsize), self._tap_offsets()
        calls = self._by_group(image, weights, out, bias, tiles, taps, self.inner * channel, store)
        return [*steps, *widen, *calls]

    def _by_channel(
        self,
        shape: DepthwiseShape,
        x: _Array,
        w: _Array,
        y: _Array,
        bias: _Array | None = None,
        store: FusedStore | None = None,
    ) -> Call:
        """The depthwise convolution."""
        extra = store.arguments() if store else dict.fromkeys(EXTRAS, 0)
        arguments: dict[str, Any] = {"x": x, "w": w, "y": y, "bias": bias, "channels": self.channels}
        function = depthwise(shape, store.form) if store else depthwise(shape)
        return named_call(function, DEPTHWISE, **arguments, **extra)

    def _by_group(
        self,
        image: _Array,
        weights: _Array,
        y: _Array,
        bias: _Array | None,
        tiles: Sequence[OutputBlocks],
        steps: NDArray[np.int64],
        group_bytes: int,
        store: FusedStore | None = None,
    ) -> list[Call]:
        """``weights`` [groups, rows, depth]; groups of the image are ``group_bytes`` apart."""
        rows, depth = weights.shape[1:]
        common: dict[str, Any] = {
            "x": image,
            "step": steps,
            "bias": bias,
            "bias_batch": 4 * rows,
            "w_row": 4 * depth,
            "w_step": 4,
            "w_block": None,
            "batch": self.groups,
            "x_batch": group_bytes,
            "w_batch": 4 * rows * depth,
            "y_batch": rows * y.strides[0],
            "store": store,
        }
        return [
            product_call(y[first:], depth, count, high, first, w=weights[:, first:], **own)
            for own in (common | part.arguments(y) for part in tiles)
            for first, count, high in row_blocks(rows)
        ]

    # Gradient of the data

    def data_gradient(self, g: _Array, w: _Array, dx: _Array, scratch: Sequence[_Array]) -> list[Call]:
        if self.depthwise and w.dtype == np.float32:
            return [self._by_channel(self.depthwise.gradient(), g, w, dx)]
        return super().data_gradient(g, w, dx, scratch)

    def _packed(self, w: _Array, taps: list[tuple[int, int]], scratch: _Array) -> tuple[_Array, list[Call]]:
        """[groups, inner, outer and tap]"""
        shape = (self.groups, self.inner, self.outer, len(taps))
        packed = scratch[: self.filters * self.inner * len(taps)].reshape(shape)
        wide = w.reshape(self.groups, self.outer, *w.shape[1:])
        steps: list[Call] = [
            relocation(wide[..., i, j].transpose(0, 2, 1), packed[..., number]) for number, (i, j) in enumerate(taps)
        ]
        return packed, steps

    def _products(
        self,
        image: _Array,
        packed: _Array,
        y: _Array,
        tiles: Sequence[OutputBlocks],
        steps: NDArray[np.int64],
        sizes: tuple[int, int],
    ) -> list[Call]:
        weights = packed.reshape(self.groups, self.inner, -1)
        group_bytes = self.outer * sizes[0] * sizes[1] * self.batch * 4
        return self._by_group(image, weights, y, None, tiles, steps, group_bytes)

    # Gradient of the weights

    def weight_gradient(self, g: _Array, x: _Array, dw: _Array, scratch: Sequence[_Array]) -> list[Call]:
        if self.depthwise is None or x.dtype != np.float32:
            return super().weight_gradient(g, x, dw, scratch)
        arguments: dict[str, Any] = {"x": x, "g": g, "dw": dw, "channels": self.channels}
        return [named_call(depthwise_weights(self.depthwise), DEPTHWISE_WEIGHTS, **arguments)]


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    rows, columns = sizes
    return int(rows), int(columns)
