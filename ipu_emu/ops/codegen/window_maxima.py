"""Window maxima: the largest element of each window of images that are stored with the batch innermost.

    y[c, h, w, n]  =  max over i, j of  x[c, row(h, i), column(w, j), n]

``row`` and ``column`` are tables of byte offsets. A tap outside of the image has the offset of another tap of the
same window, which leaves the maximum as it is, so that no tap needs a branch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import Call, call, offsets
from ipu_emu.ops.codegen.llvm_builder import FLOAT, I64, Kernel, const, repeat
from ipu_emu.ops.codegen.llvm_compiler import generated, vector_width

__all__ = ["MOST_TAPS", "window_maxima_call"]

#: The most taps of a window that a kernel reads, each by instructions of its own.
MOST_TAPS = 25


@generated
def window_maxima(high: int, wide: int, lanes: int) -> str:
    """Windows of ``high`` x ``wide`` taps; NaN counts as the largest, and the first of equal elements is taken.

    Arguments: x, y, offsets of rows [out height, high] and of columns [out width, wide], channels, out height, out
    width, batch (at least ``lanes``), bytes of a channel of x.
    """
    kernel = Kernel("window_maxima", 9)
    b, type = kernel.b, FLOAT if lanes == 1 else ir.VectorType(FLOAT, lanes)
    x, y, rows, columns = (kernel.pointer(i) for i in range(4))
    channels, out_height, out_width, batch, channel_bytes = kernel.arguments[4:]
    line = b.mul(batch, const(4))

    def entries(table: Any, first: Any, count: int) -> list[Any]:
        start = b.mul(first, const(8 * count))
        return [kernel.load(table, b.add(start, const(8 * i)), I64, 8) for i in range(count)]

    def image_row(index: Any, _: list[Any]) -> list[Any]:
        image = b.gep(x, [b.mul(b.sdiv(index, out_height), channel_bytes)])
        sources = [b.gep(image, [at]) for at in entries(rows, b.srem(index, out_height), high)]
        out = b.gep(y, [b.mul(b.mul(index, out_width), line)])

        def pixel(w: Any, _: list[Any]) -> list[Any]:
            places = entries(columns, w, wide)
            taps = [b.gep(source, [place]) for source in sources for place in places]
            target = b.gep(out, [b.mul(w, line)])

            def vector(n: Any, _: list[Any]) -> list[Any]:
                last = b.sub(batch, const(lanes))
                at = b.mul(b.select(b.icmp_signed("<", n, last), n, last), const(4))
                kernel.store(_largest(b, [kernel.load(tap, at, type) for tap in taps]), target, at)
                return []

            repeat(b, batch, [], vector, step=lanes)
            return []

        repeat(b, out_width, [], pixel)
        return []

    repeat(b, b.mul(channels, out_height), [], image_row)
    return kernel.finish()


def _largest(b: Any, values: list[Any]) -> Any:
    """The first of the largest ``values``; NaN where any is NaN, of which two are found by one comparison."""
    best, type = values[0], values[0].type
    for value in values[1:]:
        best = b.select(b.fcmp_ordered(">", value, best), value, best)
    found = [b.fcmp_unordered("uno", *pair) for pair in zip(values[::2], [*values[1::2], values[-1]], strict=False)]
    wrong = found[0]
    for other in found[1:]:
        wrong = b.or_(wrong, other)
    nan = ir.Constant(type, [float("nan")] * type.count if isinstance(type, ir.VectorType) else float("nan"))
    return b.select(wrong, nan, best)


def window_maxima_call(
    x: NDArray[np.float32], y: NDArray[np.float32], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> Call | None:
    """The call that sets ``y`` [C, OH, OW, N] from ``x`` [C, H, W, N], both contiguous.

    ``rows`` [kh, OH] and ``columns`` [kw, OW] are the indices that the taps of each window read; those outside of the
    image are negative. None where a window is too large, or has no tap in the image.
    """
    high, wide, batch = len(rows), len(columns), x.shape[3]
    if high * wide > MOST_TAPS or not x.size or min(rows.max(0).min(), columns.max(0).min()) < 0:
        return None
    lanes = vector_width()
    while lanes > batch:
        lanes //= 2
    tables = [offsets(_inside(index).T * size) for index, size in ((rows, x.strides[1]), (columns, x.strides[2]))]
    function = window_maxima(high, wide, lanes)
    return call(function, x, y, *tables, x.shape[0], y.shape[1], y.shape[2], batch, x.strides[0])


def _inside(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """``places`` [taps, windows] with the first index inside of the image in place of each that is outside."""
    first = places[np.argmax(places >= 0, axis=0), np.arange(places.shape[1])]
    return np.where(places < 0, first, places)
