"""Depthwise weights: the weight gradient of a convolution of each channel by itself, which reads the image in place.

    dw[c, i, j]  =  sum over r, q of  g[c, r, q] x[c, r sh - ph + i, q sw - pw + j]      q: column and sample

Rows and columns outside of the image are left out, as by ``depthwise``. The sums of a row of the kernel stay in
registers while r and q run: a vector of partial sums for each length of vectors and, so that additions overlap, for
each residue of the vector's number in its group. At the end the lanes of each are added up in halves, and then they.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ipu_emu.ops.codegen.depthwise_kernel import TOGETHER, DepthwiseShape, Piece, PieceGroup, pixels, runs_of_pieces
from ipu_emu.ops.codegen.llvm_builder import FLOAT, NamedKernel, const, repeat
from ipu_emu.ops.codegen.llvm_compiler import generated

#: Names of the arguments, in order.
DEPTHWISE_WEIGHTS = ["x", "g", "dw", "channels"]


@generated
def depthwise_weights(shape: DepthwiseShape) -> str:
    """Takes addresses of x [C, H, W, N], g [C, OH, OW, N] and dw [C, kh, kw], then C."""
    return _Weights(shape).text()


#: A sum: the lanes of its vector, which of several vectors it is, and the column of the kernel.
_Sum = tuple[int, int, int]


class _Weights:
    def __init__(self, shape: DepthwiseShape) -> None:
        self.shape, self.runs = shape, runs_of_pieces(shape, TOGETHER)
        self.kernel = NamedKernel("depthwise_weights", DEPTHWISE_WEIGHTS)
        self.b, self.copies = self.kernel.b, max(1, TOGETHER // shape.kernel[1])
        groups = [run[0] for run in self.runs]
        self.sums: list[_Sum] = sorted({key for group in groups for key, *_ in self.products(group)})

    def products(self, group: PieceGroup) -> list[tuple[_Sum, Piece, int, tuple[bool, ...]]]:
        """(sum, register, first element of x, lanes inside x) of each product."""
        return [
            ((piece.lanes, number % self.copies, tap), piece, at, inside)
            for number, piece in enumerate(group.pieces)
            for tap, at, inside in piece.taps
        ]

    def text(self) -> str:
        self.kernel.loop(self.kernel["channels"], self.channel)
        return self.kernel.finish()

    def channel(self, c: Any) -> None:
        (height, width), (rows, columns), shape, kernel = self.shape.image, self.shape.output, self.shape, self.kernel
        b, line, out_line = self.b, 4 * width * shape.batch, 4 * columns * shape.batch
        x = kernel.address("x", (c, const(height * line)))
        g = kernel.address("g", (c, const(rows * out_line)))
        dw = kernel.address("dw", (c, const(4 * shape.kernel[0] * shape.kernel[1])))

        def kernel_row(i: Any) -> None:
            before = b.sub(const(shape.pads[0]), i)  # rows of padding above the first window's row i
            first, last = (self.windows_before(end) for end in (before, b.add(before, const(height))))
            last = kernel.smaller(last, const(rows))

            def row(r: Any, sums: list[Any]) -> list[Any]:
                source = b.gep(x, [b.mul(b.sub(b.mul(r, const(shape.strides[0])), before), const(line))])
                return self.row(source, b.gep(g, [b.mul(r, const(out_line))]), sums)

            totals = repeat(b, last, [self.zero(lanes) for lanes, *_ in self.sums], row, start=first)
            self.store(totals, b.gep(dw, [b.mul(i, const(4 * shape.kernel[1]))]))

        kernel.loop(const(shape.kernel[0]), kernel_row)

    def windows_before(self, rows: Any) -> Any:
        """The number of windows that begin in the first ``rows`` rows, which may be negative."""
        stride = self.shape.strides[0]
        upper = self.b.add(rows, const(stride - 1))
        return self.b.sdiv(self.kernel.larger(upper, const(0)), const(stride))

    def zero(self, lanes: int) -> Any:
        return ir.Constant(ir.VectorType(FLOAT, lanes), [0.0] * lanes) if lanes > 1 else ir.Constant(FLOAT, 0.0)

    def row(self, source: Any, gradient: Any, sums: list[Any]) -> list[Any]:
        """Add the products of a row of g with a row of x; groups of equal form at equal distances in a loop."""
        b = self.b
        for run in self.runs:
            first = run[0]
            if len(run) == 1:
                sums = self.group(first, source, gradient, sums)
                continue
            steps = 4 * (run[1].source - first.source), 4 * (run[1].place - first.place)

            def group_at(index: Any, sums: list[Any], first: PieceGroup = first, steps: Any = steps) -> list[Any]:
                of_x, of_g = (
                    b.gep(at, [b.mul(index, const(s))]) for at, s in zip((source, gradient), steps, strict=True)
                )
                return self.group(first, of_x, of_g, sums)

            sums = repeat(b, const(len(run)), sums, group_at)
        return sums

    def group(self, group: PieceGroup, source: Any, gradient: Any, sums: list[Any]) -> list[Any]:
        kernel, totals = self.kernel, dict(zip(self.sums, sums, strict=True))
        loaded: dict[int, Any] = {}
        for key, piece, at, inside in self.products(group):
            if piece.place not in loaded:
                type = ir.VectorType(FLOAT, piece.lanes) if piece.lanes > 1 else FLOAT
                loaded[piece.place] = kernel.load(gradient, const(4 * piece.place), type)
            values = pixels(kernel, source, at, inside)
            totals[key] = kernel.intrinsic("fma", loaded[piece.place], values, totals[key])
        return [totals[key] for key in self.sums]

    def store(self, sums: list[Any], line: Any) -> None:
        """Store the sums of a row of the kernel."""
        b = self.b
        for j in range(self.shape.kernel[1]):
            total = ir.Constant(FLOAT, 0.0)
            for (*_, tap), value in zip(self.sums, sums, strict=True):
                if tap == j:
                    wide = isinstance(value.type, ir.VectorType)
                    total = b.fadd(total, self.kernel.across(value, b.fadd) if wide else value)
            self.kernel.store(total, line, const(4 * j))
