"""Depthwise kernel: a convolution of each channel by itself, which reads the image where it is stored.

    y[c, r, q]  =  bias[c] + sum over i, j of  w[c, i, j] x[c, r sh - ph + i, q sw - pw + j]      q: column and sample

Rows and columns outside of the image are left out, so the image is copied neither for padding nor for strides. A
vector of LANES, on every processor, holds neighbours of a row of y; where only some of its numbers lie in the image,
the others are read as zeros. A sum starts from the bias and takes one fused multiply-add per tap, i and j ascending.

    stride 1, 5 columns of 8 samples, tap 0     vector 0   0 0 0 0 0 0 0 0 x x x x x x x x
                                                vector 1   x x x x ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from llvmlite import ir

from ipu_emu.ops.codegen.fused_store import EXTRAS, StoreForm, stored_value
from ipu_emu.ops.codegen.llvm_builder import FLOAT, I32, NamedKernel, const, repeat
from ipu_emu.ops.codegen.llvm_compiler import LANES, generated, vector_width

#: Names of the arguments, in order.
DEPTHWISE = ["x", "w", "y", "bias", "channels", *EXTRAS]

#: Vectors at a time: enough to hide the latency of additions.
TOGETHER = 8


@dataclass(frozen=True)
class DepthwiseShape:
    """(rows, columns) of the image, output and kernel; strides; padding before the first ones; batch size.

    With ``turned`` y is the gradient of the image from that of the output, which is the ``image`` here: y[c, u, v] is
    the sum over i, j of w[c, i, j] x[c, (u + ph - i) / sh, (v + pw - j) / sw], for whole quotients only.
    """

    image: tuple[int, int]
    output: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]
    batch: int
    turned: bool = False

    def gradient(self) -> DepthwiseShape:
        """The shape that computes the gradient of the image from that of the output."""
        return replace(self, image=self.output, output=self.image, turned=True)

    def column_of_image(self, column: int, tap: int) -> int | None:
        """The column of the image that a tap reads for one of the output, or None if there is none."""
        stride, pad = self.strides[1], self.pads[1]
        if not self.turned:
            return column * stride - pad + tap
        read, rest = divmod(column + pad - tap, stride)
        return None if rest else read


@generated
def depthwise(shape: DepthwiseShape, store: StoreForm | None = None) -> str:
    """Takes addresses of x [C, H, W, N], w [C, kh, kw], y [C, OH, OW, N], bias [C] (or 0: no bias), then C."""
    return _Depthwise(shape, store).text()


@dataclass(frozen=True)
class Piece:
    """A vector of y that begins at ``place`` in a row; ``taps``: (tap, first element of x, lanes inside x)."""

    place: int
    lanes: int
    taps: tuple[tuple[int, int, tuple[bool, ...]], ...]

    def form(self, origin: int, source: int) -> Any:
        """Pieces of equal form share code: its offsets relative to elements ``origin`` of y and ``source`` of x."""
        return self.place - origin, self.lanes, tuple((j, at - source, inside) for j, at, inside in self.taps)


def _pieces(shape: DepthwiseShape) -> Iterator[Piece]:
    """Yield the vectors of a row."""
    batch, stride, line = shape.batch, shape.strides[1], shape.image[1] * shape.batch
    # The neighbours of a column lie together in the image only without a stride.
    run = shape.output[1] * batch if stride == 1 else batch
    for first in range(0, shape.output[1] * batch, run):
        start, left = first, run
        while left:
            lanes = min(LANES, 1 << (left.bit_length() - 1))
            taps = []
            for j in range(shape.kernel[1]):
                column = shape.column_of_image(first // batch, j)
                if column is None:
                    continue
                at = column * batch + start - first
                inside = tuple(0 <= at + lane < line for lane in range(lanes))
                if any(inside):
                    taps.append((j, at, inside))
            yield Piece(start, lanes, tuple(taps))
            start, left = start + lanes, left - lanes


@dataclass(frozen=True)
class PieceGroup:
    """Vectors that are computed together, from ``place`` on in a row of y, from ``source`` on in a row of x."""

    pieces: tuple[Piece, ...]

    @property
    def place(self) -> int:
        return self.pieces[0].place

    @property
    def source(self) -> int:
        return min((at for piece in self.pieces for _, at, _ in piece.taps), default=0)

    def form(self) -> Any:
        return tuple(piece.form(self.place, self.source) for piece in self.pieces)


def runs_of_pieces(shape: DepthwiseShape, together: int) -> list[list[PieceGroup]]:
    """The vectors of a row in groups of ``together``, and runs of groups of equal form."""
    pieces = list(_pieces(shape))
    groups = [PieceGroup(tuple(pieces[i : i + together])) for i in range(0, len(pieces), together)]
    return [list(run) for _, run in groupby(groups, PieceGroup.form)]


def pixels(kernel: NamedKernel, row: Any, at: int, inside: tuple[bool, ...]) -> Any:
    """The elements of a row of the image from ``at`` on; zeros for lanes that are not ``inside`` the image."""
    lanes = len(inside)
    type = ir.VectorType(FLOAT, lanes) if lanes > 1 else FLOAT
    if all(inside):
        return kernel.load(row, const(4 * at), type)
    mask, zero = ir.VectorType(ir.IntType(1), lanes), ir.Constant(type, [0.0] * lanes)
    name, arguments = f"llvm.masked.load.v{lanes}f32.p0v{lanes}f32", [type.as_pointer(), I32, mask, type]
    pointer = kernel.at(row, const(4 * at), type)
    operands = [pointer, ir.Constant(I32, 4), ir.Constant(mask, list(inside)), zero]
    return kernel.b.call(kernel.declared(name, type, arguments), operands)


@dataclass(frozen=True)
class _Taps:
    """Rows of the kernel from ``start`` on, every ``step``; row i of it reads row ``line(i)`` of the image."""

    start: Any
    stop: Any
    step: int
    line: Callable[[Any], Any]


class _Depthwise:
    def __init__(self, shape: DepthwiseShape, store: StoreForm | None) -> None:
        self.shape, self.store = shape, store
        self.kernel = NamedKernel("depthwise", DEPTHWISE)
        self.b = self.kernel.b

    def text(self) -> str:
        together = TOGETHER * vector_width() // LANES  # as many registers on every processor
        runs = runs_of_pieces(self.shape, together)
        self.kernel.loop(self.kernel["channels"], lambda c: self.channel(c, runs))
        return self.kernel.finish()

    def channel(self, c: Any, runs: list[list[PieceGroup]]) -> None:
        (height, width), (rows, columns), shape, kernel = self.shape.image, self.shape.output, self.shape, self.kernel
        line, taps = 4 * width * shape.batch, shape.kernel[0] * shape.kernel[1]
        x = kernel.address("x", (c, const(height * line)))
        y = kernel.address("y", (c, const(4 * rows * columns * shape.batch)))
        w = kernel.address("w", (c, const(4 * taps)))
        bias = self.bias(c)

        def row(r: Any) -> None:
            target = self.b.gep(y, [self.b.mul(r, const(4 * columns * shape.batch))])
            taps_of_row = self.turned_taps(r) if shape.turned else self.taps(r)
            for run in runs:
                self.run(run, x, target, w, bias, taps_of_row)

        kernel.loop(const(rows), row)

    def taps(self, r: Any) -> _Taps:
        """The rows of the kernel that are in the image for row ``r`` of y."""
        b, (height, _), high = self.b, self.shape.image, self.shape.kernel[0]
        top = b.sub(b.mul(r, const(self.shape.strides[0])), const(self.shape.pads[0]))
        stop = self.kernel.smaller(b.sub(const(height), top), const(high))
        return _Taps(self.kernel.larger(b.neg(top), const(0)), stop, 1, lambda i: b.add(top, i))

    def turned_taps(self, r: Any) -> _Taps:
        b, (height, _), (high, _), stride = self.b, self.shape.image, self.shape.kernel, self.shape.strides[0]
        below = b.add(r, const(self.shape.pads[0]))
        last = b.sub(below, const((height - 1) * stride))  # the tap that reads the last row, or no tap
        start = b.select(b.icmp_signed("<", last, const(0)), b.srem(below, const(stride)), last)
        stop = self.kernel.smaller(const(high), b.add(below, const(1)))
        return _Taps(start, stop, stride, lambda i: b.sdiv(b.sub(below, i), const(stride)))

    def bias(self, c: Any) -> Any:
        """The bias of a channel, or zero."""
        b = self.b
        has_bias = b.icmp_signed("!=", self.kernel["bias"], const(0))
        before = b.block
        with b.if_then(has_bias):
            value = self.kernel.load(self.kernel.address("bias"), b.mul(c, const(4)), FLOAT)
            inside = b.block
        phi = b.phi(FLOAT)
        phi.add_incoming(ir.Constant(FLOAT, 0.0), before)
        phi.add_incoming(value, inside)
        return phi

    def run(self, groups: list[PieceGroup], source: Any, target: Any, w: Any, bias: Any, rows: _Taps) -> None:
        """Compute groups of equal form at equal distances, in a loop."""
        first, b = groups[0], self.b
        if len(groups) == 1:
            self.group(first, source, target, w, bias, rows)
            return
        steps = 4 * (groups[1].source - first.source), 4 * (groups[1].place - first.place)

        def group_at(index: Any) -> None:
            pixels = b.gep(source, [b.mul(index, const(steps[0]))])
            results = b.gep(target, [b.mul(index, const(steps[1]))])
            self.group(first, pixels, results, w, bias, rows)

        self.kernel.loop(const(len(groups)), group_at)

    def group(self, group: PieceGroup, source: Any, target: Any, w: Any, bias: Any, rows: _Taps) -> None:
        b, kernel = self.b, self.kernel
        line, columns = 4 * self.shape.image[1] * self.shape.batch, self.shape.kernel[1]
        pieces = group.pieces

        def kernel_row(i: Any, sums: list[Any]) -> list[Any]:
            line_of_x = b.gep(source, [b.mul(rows.line(i), const(line))])
            factors = b.gep(w, [b.mul(i, const(4 * columns))])
            sums = list(sums)
            for j in range(columns):
                factor = kernel.load(factors, const(4 * j), FLOAT)
                for number, piece in enumerate(pieces):
                    for at, inside in ((at, inside) for tap, at, inside in piece.taps if tap == j):
                        values = pixels(kernel, line_of_x, at, inside)
                        wide = self.wide(factor, piece.lanes)
                        sums[number] = kernel.intrinsic("fma", wide, values, sums[number])
            return sums

        start = [self.wide(bias, piece.lanes) for piece in pieces]
        sums = repeat(b, rows.stop, start, kernel_row, start=rows.start, step=rows.step)
        for piece, value in zip(pieces, sums, strict=True):
            kernel.store(self.function_of(value, target, piece), target, const(4 * piece.place))

    def wide(self, value: Any, lanes: int) -> Any:
        return self.kernel.splat(value, lanes) if lanes > 1 else value

    def function_of(self, value: Any, target: Any, piece: Piece) -> Any:
        """What is stored for ``value``."""
        if self.store is None:
            return value

        def load(name: str, kind: str) -> Any:
            assert kind == "full", kind
            place = self.b.gep(target, [self.kernel[name]])
            return self.kernel.load(place, const(4 * piece.place), value.type)

        return stored_value(self.kernel, self.store, value, load)
