"""Window maxima: the largest element of each window of images that are stored with the batch innermost.

    y[c, h, w, n]  =  max over i, j of  x[c, row(h, i), column(w, j), n]

``row`` and ``column`` are tables of byte offsets. A tap outside of the image has the offset of another tap of the
same window, which leaves the maximum as it is, so that no tap needs a branch. The gradient gives each number of g to
the first tap of its window that equals the maximum, or is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from ipu_emu.ops.codegen.compiled_call import Call, call, offsets
from ipu_emu.ops.codegen.llvm_builder import FLOAT, I64, Kernel, const
from ipu_emu.ops.codegen.llvm_compiler import generated, vector_width

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

    def image_row(index: Any) -> None:
        image = b.gep(x, [b.mul(b.sdiv(index, out_height), channel_bytes)])
        sources = [b.gep(image, [at]) for at in _entries(kernel, rows, b.srem(index, out_height), high)]
        out = b.gep(y, [b.mul(b.mul(index, out_width), line)])

        def pixel(w: Any) -> None:
            places = _entries(kernel, columns, w, wide)
            taps = [b.gep(source, [place]) for source in sources for place in places]
            target = b.gep(out, [b.mul(w, line)])

            def vector(n: Any) -> None:
                at = b.mul(kernel.smaller(n, b.sub(batch, const(lanes))), const(4))
                kernel.store(_largest(b, [kernel.load(tap, at, type) for tap in taps]), target, at)

            kernel.loop(batch, vector, step=lanes)

        kernel.loop(out_width, pixel)

    kernel.loop(b.mul(channels, out_height), image_row)
    return kernel.finish()


def _entries(kernel: Kernel, table: Any, index: Any, count: int) -> list[Any]:
    """The ``count`` numbers of line ``index`` of a table."""
    start = kernel.b.mul(index, const(8 * count))
    return [kernel.load(table, kernel.b.add(start, const(8 * i)), I64, 8) for i in range(count)]


def _largest(b: Any, values: list[Any]) -> Any:
    """The first of the largest ``values``; NaN where any is NaN, of which two are found by one comparison."""
    best, type = values[0], values[0].type
    for value in values[1:]:
        best = b.select(b.fcmp_ordered(">", value, best), value, best)
    nans = [b.fcmp_unordered("uno", *pair) for pair in zip(values[::2], [*values[1::2], values[-1]], strict=False)]
    wrong = nans[0]
    for other in nans[1:]:
        wrong = b.or_(wrong, other)
    nan = ir.Constant(type, [float("nan")] * type.count if isinstance(type, ir.VectorType) else float("nan"))
    return b.select(wrong, nan, best)


@generated
def window_maxima_gradient(high: int, wide: int, lanes: int) -> str:
    """The gradient of ``window_maxima``; numbers of the batch that do not fill ``lanes`` are taken one by one.

    Arguments: g, x, y, dx, offsets of rows and of columns, channels, out height, out width, batch, bytes of a channel
    of x.
    """
    kernel = Kernel("window_maxima_gradient", 11)
    b = kernel.b
    arrays = [kernel.pointer(i) for i in range(4)]
    rows, columns = kernel.pointer(4), kernel.pointer(5)
    channels, out_height, out_width, batch, channel_bytes = kernel.arguments[6:]
    line, vectored = b.mul(batch, const(4)), b.mul(b.sdiv(batch, const(lanes)), const(lanes))

    def channel(index: Any) -> None:
        g, x, y, dx = (
            b.gep(array, [b.mul(index, size)])
            for array, size in zip(arrays, _channel_sizes(b, out_height, out_width, line, channel_bytes), strict=True)
        )
        _clear(kernel, dx, channel_bytes, lanes)

        def window(number: Any) -> None:
            lines = _entries(kernel, rows, b.sdiv(number, out_width), high)
            places = [b.add(u, v) for u in lines for v in _entries(kernel, columns, b.srem(number, out_width), wide)]
            out = b.mul(number, line)

            def samples(type: Any) -> Any:
                def give(n: Any) -> None:
                    at = b.add(out, b.mul(n, const(4)))
                    taps = [b.add(place, b.mul(n, const(4))) for place in places]
                    _give(kernel, kernel.load(g, at, type), kernel.load(y, at, type), (x, dx), taps)

                return give

            kernel.loop(vectored, samples(ir.VectorType(FLOAT, lanes)), step=lanes)
            kernel.loop(batch, samples(FLOAT), start=vectored)

        kernel.loop(b.mul(out_height, out_width), window)

    kernel.loop(channels, channel)
    return kernel.finish()


def _channel_sizes(b: Any, out_height: Any, out_width: Any, line: Any, channel_bytes: Any) -> list[Any]:
    """Bytes of a channel of g, x, y and dx."""
    nbytes = b.mul(b.mul(out_height, out_width), line)
    return [nbytes, channel_bytes, nbytes, channel_bytes]


def _clear(kernel: Kernel, target: Any, nbytes: Any, lanes: int) -> None:
    """Set ``nbytes`` bytes to zero, at least ``lanes`` numbers; the last vector may overlap the one before."""
    b, type = kernel.b, ir.VectorType(FLOAT, lanes)
    last = b.sub(nbytes, const(4 * lanes))

    def vector(at: Any) -> None:
        kernel.store(ir.Constant(type, [0.0] * lanes), target, kernel.smaller(at, last))

    kernel.loop(nbytes, vector, step=4 * lanes)


def _give(kernel: Kernel, left: Any, best: Any, images: tuple[Any, Any], taps: list[Any]) -> None:
    """Add ``left`` to dx at the first of the ``taps`` at which x equals ``best`` or is NaN."""
    b, (x, dx) = kernel.b, images
    zero = ir.Constant(left.type, [0.0] * left.type.count if isinstance(left.type, ir.VectorType) else 0.0)
    for tap in taps:
        source = kernel.load(x, tap, left.type)
        chosen = b.or_(b.fcmp_ordered("==", source, best), b.fcmp_unordered("uno", source, source))
        kernel.store(b.fadd(kernel.load(dx, tap, left.type), b.select(chosen, left, zero)), dx, tap)
        left = b.select(chosen, zero, left)


def window_maxima_call(
    x: NDArray[np.float32], y: NDArray[np.float32], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> Call | None:
    """The call that sets ``y`` [C, OH, OW, N] from ``x`` [C, H, W, N], both contiguous.

    ``rows`` [kh, OH] and ``columns`` [kw, OW] are the indices that the taps of each window read; those outside of the
    image are negative. None where a window is too large, or has no tap in the image.
    """
    form = _form(x, rows, columns)
    if form is None:
        return None
    tables = _tables(x, rows, columns)
    return call(window_maxima(*form), x, y, *tables, x.shape[0], *y.shape[1:], x.strides[0])


def window_maxima_gradient_call(
    g: NDArray[np.float32],
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    dx: NDArray[np.float32],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
) -> Call | None:
    """The call that sets ``dx`` [C, H, W, N] from the gradient ``g`` of ``y``; else as ``window_maxima_call``."""
    form = _form(x, rows, columns)
    if form is None:
        return None
    tables = _tables(x, rows, columns)
    return call(window_maxima_gradient(*form), g, x, y, dx, *tables, x.shape[0], *y.shape[1:], x.strides[0])


def _form(x: NDArray[np.float32], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> tuple[int, int, int] | None:
    """(height, width, lanes) of the kernel, or None where there is none for these windows."""
    high, wide, lanes = len(rows), len(columns), vector_width()
    if high * wide > MOST_TAPS or not x.size or min(rows.max(0).min(), columns.max(0).min()) < 0:
        return None
    while lanes > x.shape[3]:
        lanes //= 2
    return high, wide, lanes


def _tables(x: NDArray[np.float32], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The byte offsets in ``x`` of the taps of each window."""
    return [offsets(_inside(index).T * size) for index, size in ((rows, x.strides[1]), (columns, x.strides[2]))]


def _inside(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """``places`` [taps, windows] with the first index inside of the image in place of each that is outside."""
    first = places[np.argmax(places >= 0, axis=0), np.arange(places.shape[1])]
    return np.where(places < 0, first, places)
