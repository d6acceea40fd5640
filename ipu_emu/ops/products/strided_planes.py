"""Planes: a padded image cut by its strides, so that what a tap reads is a run of neighbours (see ``direct``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.codegen.compiled_call import call
from ipu_emu.codegen.strided_copy import pad
from ipu_emu.ops.core.op_definition import Call
from ipu_emu.ops.core.sliding_windows import Windows

__all__ = ["PlaneAxis", "padding"]

_Array = NDArray[Any]


@dataclass(frozen=True)
class PlaneAxis:
    """One axis of the windows: which plane each tap reads, and how far into it."""

    size: int
    out: int
    stride: int
    before: int
    taps: tuple[tuple[int, int], ...]  # (plane, shift)

    @classmethod
    def of(cls, windows: Windows, axis: int) -> PlaneAxis:
        stride, dilation = windows.strides[axis], windows.dilations[axis]
        taps = tuple((i * dilation % stride, i * dilation // stride) for i in range(windows.kernel[axis]))
        return cls(windows.input[axis], windows.output[axis], stride, windows.pads[axis], taps)

    @property
    def reach(self) -> int:
        return max(shift for _, shift in self.taps)

    @property
    def length(self) -> int:
        """Of every plane."""
        return self.out + self.reach

    def planes(self) -> list[int]:
        return sorted({plane for plane, _ in self.taps})

    def inside(self, plane: int) -> tuple[int, int]:
        """The places [low, high) of a plane that hold the image, not padding."""
        low = max(0, -((plane - self.before) // self.stride))
        high = min(self.length, (self.before + self.size - 1 - plane) // self.stride + 1)
        return low, max(low, high)

    def place(self, plane: int, index: int) -> int:
        """The place in the image of place ``index`` of a plane."""
        return index * self.stride + plane - self.before


def padding(x: _Array, target: _Array, rows: int, first: int, stride: int, columns: PlaneAxis, plane: int) -> Call:
    """Copy one plane of ``x`` [C, H, W, N] to ``target`` [C, rows, columns, N]."""
    batch = x.shape[3]
    low, high = columns.inside(plane)
    start = columns.place(plane, low) if high > low else 0
    runs, run = (1, (high - low) * batch) if columns.stride == 1 else (high - low, batch)
    if high <= low:
        runs = run = 0
    return call(
        pad(x.dtype == np.float16),
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
