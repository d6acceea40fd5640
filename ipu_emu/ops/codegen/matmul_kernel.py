"""Matrix product kernel: its right operand is read where it is stored.

    y[m, at(t) + v]  =  bias + sum over k of w[m, k] * x[from(t) + step(k) + v]      v = 0 .. tile - 1

Depths are added in ascending order, with one fused multiply-add for each.

``from``, ``at`` and, if it is not k times a number, ``step`` are tables of byte offsets, so that x may be a plain
matrix or the windows of a padded image: nothing is gathered. A block of y stays in registers while k runs. Constant
strides and an unrolled loop over depths save a quarter of its instructions, and a tenth of its time on a shared
machine. Measured on one core of an EPYC (Zen 4, 118 GFLOP/s at most): 110 to 116 GFLOP/s on the convolutions of a
ResNet, where OpenBLAS on gathered columns has 20 to 35, and 95 on large square matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ipu_emu.ops.codegen.fused_store import EXTRAS, RESULT, StoreForm, stored_value
from ipu_emu.ops.codegen.llvm_builder import FLOAT, HALF, NamedKernel, const, repeat
from ipu_emu.ops.codegen.llvm_compiler import generated, vector_width

#: Names of the arguments, in order; strides in bytes.
PRODUCT = [
    "x",
    "w",
    "y",
    "from",
    "at",
    "step",
    "x_step",
    "bias",
    "bias_batch",
    "tiles",
    "depth",
    "blocks",
    "y_row",
    "w_row",
    "w_step",
    "w_block",
    "tile_chunk",
    "depth_chunk",
    "add",
    "batch",
    "x_batch",
    "w_batch",
    "y_batch",
    "next",
    "next_row",
    "next_block",
    "next_tile",
    "next_tiles",
    "w_at",
    *EXTRAS,
]


#: Depths per iteration of the unrolled loop.
_UNROLLED = 4


def block_rows() -> int:
    """Rows of y in registers at a time, two registers each; smaller blocks are for the remainder.

    The operands need some of the 16 registers of AVX2: with 8 rows the sums spill to the stack in the inner loop (a
    third of the speed, and a tenth if they cross a page boundary).
    """
    return 8 if vector_width() > 8 else 6


def row_blocks(rows: int) -> list[tuple[int, int, int]]:
    """(first row, number of blocks, rows of a block): whole blocks, then the rest of ``rows`` as one block."""
    blocks, left = divmod(rows, block_rows())
    parts = ((0, blocks, block_rows()), (blocks * block_rows(), 1, left))
    return [part for part in parts if all(part[1:])]


@generated
def product(
    rows: int,
    vectors: int,
    half: bool = False,
    wide_bias: bool = False,
    even: bool = False,
    fixed: tuple[tuple[str, int], ...] = (),
    lanes: int = 0,
    prefetch: bool = False,
    store: StoreForm | None = None,
    listed: bool = False,
) -> str:
    """``rows`` x ``vectors`` registers of y at a time; a ``half`` y is rounded when it is stored.

    A register has ``lanes`` numbers: fewer than the processor's where a line of y is shorter (0: as many).

    Arguments, strides above all, may be ``fixed`` to constants, which saves instructions that compute addresses. If
    the rows of x are ``even``, they are ``x_step`` bytes apart, and ``step`` is not read.

    The bias has one number per row, or with ``wide_bias`` one per column; address 0 means no bias.

    With ``prefetch`` cache lines at ``next`` that are read later are requested, one for each depth and tile: tile t
    of block m requests line ``next + m next_block + t next_tile + k next_row``, if it is among the first
    ``next_tiles`` of all. Copying weights into panels otherwise waits for the memory: inference of ConvNeXt takes 45
    ms instead of 39.

    If the weights are ``listed``, those of depth k are ``w_at[k]`` bytes from the first, not k ``w_step``.

    With ``store`` a function of the results is stored; all depths must then be one chunk.

    Chunks of depth are outermost, then chunks of tiles, then blocks of rows, then tiles: a chunk of x stays in the
    L2 cache for all rows, and a block of w in the L1 cache for all tiles.
    """
    kernel = NamedKernel("product", PRODUCT, fixed)
    form = _Form(rows, vectors, half, wide_bias, even, lanes or vector_width(), prefetch, store, listed)
    kernel.loop(kernel["batch"], lambda n: _product_of(kernel, n, form))
    return kernel.finish()


@dataclass(frozen=True)
class _Form:
    rows: int
    vectors: int
    half: bool
    wide_bias: bool
    even: bool
    lanes: int
    prefetch: bool
    store: StoreForm | None
    listed: bool


def _product_of(kernel: NamedKernel, n: Any, form: _Form) -> None:
    b, rows = kernel.b, form.rows
    x = kernel.address("x", (n, kernel["x_batch"]))
    w = kernel.address("w", (n, kernel["w_batch"]))
    y = kernel.address("y", (n, kernel["y_batch"]))
    bias = kernel.address("bias", (n, kernel["bias_batch"]))

    def depths(number: Any) -> None:
        first = b.mul(number, kernel["depth_chunk"])
        last = kernel.smaller(b.add(first, kernel["depth_chunk"]), kernel["depth"])
        more = b.or_(b.icmp_signed("!=", number, const(0)), b.icmp_signed("!=", kernel["add"], const(0)))
        kernel.loop(_chunks(kernel, "tiles", "tile_chunk"), lambda c: tiles_of(c, first, last, more))

    def tiles_of(chunk: Any, first: Any, last: Any, more: Any) -> None:
        start = b.mul(chunk, kernel["tile_chunk"])
        stop = kernel.smaller(b.add(start, kernel["tile_chunk"]), kernel["tiles"])

        def block(m: Any) -> None:
            weights = b.gep(w, [b.mul(m, kernel["w_block"])])
            lines = b.gep(y, [b.mul(b.mul(m, const(rows)), kernel["y_row"])])

            def tile(t: Any) -> None:
                source = b.gep(x, [kernel.entry(kernel.address("from"), t)])
                target = b.gep(lines, [kernel.entry(kernel.address("at"), t)])
                registers = _Registers(kernel, form, bias)
                sums = registers.start(target, m, t, more)

                def finish(request: Callable[[Any], None] | None) -> None:
                    registers.store(registers.run(source, weights, first, last, sums, request), target, t)

                _with_requests(kernel, m, t, finish) if form.prefetch else finish(None)

            kernel.loop(stop, tile, start=start)

        kernel.loop(kernel["blocks"], block)

    kernel.loop(_chunks(kernel, "depth", "depth_chunk"), depths)


def _with_requests(kernel: NamedKernel, m: Any, t: Any, run: Callable[[Callable[[Any], None] | None], None]) -> None:
    """``run`` with the function that requests the cache line of a depth, or with None if the tile requests none.

    Requests take a tenth of the time of a product, so the tiles without any have a loop of their own.
    """
    b = kernel.b
    start = kernel.address("next", (m, kernel["next_block"]), (t, kernel["next_tile"]))
    number = b.add(b.mul(m, kernel["tiles"]), t)
    with b.if_else(b.icmp_signed("<", number, kernel["next_tiles"])) as (requesting, plain):
        with requesting:
            run(lambda k: kernel.prefetch(b.gep(start, [b.mul(k, kernel["next_row"])])))
        with plain:
            run(None)


def _chunks(kernel: NamedKernel, total: str, chunk: str) -> Any:
    b = kernel.b
    return b.sdiv(b.add(kernel[total], b.sub(kernel[chunk], const(1))), kernel[chunk])


class _Registers:
    """The block of y that is in registers."""

    def __init__(self, kernel: NamedKernel, form: _Form, bias: Any) -> None:
        self.bias = bias
        self.kernel, self.rows, self.vectors, self.half = kernel, form.rows, form.vectors, form.half
        self.wide_bias, self.even, self.form = form.wide_bias, form.even, form.store
        self.listed = form.listed
        self.width = form.lanes
        self.type = ir.VectorType(FLOAT, self.width)
        self.stored = ir.VectorType(HALF if form.half else FLOAT, self.width)
        self.size = (2 if form.half else 4) * self.width

    def start(self, target: Any, m: Any, t: Any, more: Any) -> list[Any]:
        """The initial sums: the present y, the bias, or zero."""
        b, kernel = self.kernel.b, self.kernel
        zero = ir.Constant(self.type, [0.0] * self.width)
        biased = b.icmp_signed("!=", kernel["bias"], const(0))
        first, others, fresh, plain, joined = (b.append_basic_block(n) for n in ("add", "no", "bias", "zero", "go"))
        b.cbranch(more, first, others)
        b.position_at_end(others)
        b.cbranch(biased, fresh, plain)
        b.position_at_end(first)
        old = [
            self.widened(kernel.load(self.line(target, r), const(self.size * v), self.stored, 2 if self.half else 4))
            for r in range(self.rows)
            for v in range(self.vectors)
        ]
        b.branch(joined)
        b.position_at_end(fresh)
        biases = self.columns_of_bias(t) if self.wide_bias else self.rows_of_bias(m)
        b.branch(joined)
        b.position_at_end(plain)
        b.branch(joined)
        b.position_at_end(joined)
        sums = []
        for was, bias in zip(old, biases, strict=True):
            phi = b.phi(self.type)
            for value, block in ((was, first), (bias, fresh), (zero, plain)):
                phi.add_incoming(value, block)
            sums.append(phi)
        return sums

    def rows_of_bias(self, m: Any) -> list[Any]:
        b, kernel, biases = self.kernel.b, self.kernel, []
        for r in range(self.rows):
            where = b.mul(b.add(b.mul(m, const(self.rows)), const(r)), const(4))
            biases += [kernel.splat(kernel.load(self.bias, where, FLOAT), self.width)] * self.vectors
        return biases

    def columns_of_bias(self, t: Any) -> list[Any]:
        return self.of_columns(self.bias, t) * self.rows

    def of_columns(self, numbers: Any, t: Any) -> list[Any]:
        """The registers of a row of ``numbers`` for the columns of tile ``t``."""
        kernel = self.kernel
        place = kernel.entry(kernel.address("at"), t)
        if self.half:  # ``at`` counts bytes of y, the numbers are float32
            place = kernel.b.mul(place, const(2))
        start = kernel.b.gep(numbers, [place])
        return [kernel.load(start, const(4 * self.width * v), self.type) for v in range(self.vectors)]

    def widened(self, value: Any) -> Any:
        return self.kernel.b.fpext(value, self.type) if self.half else value

    def line(self, target: Any, row: int) -> Any:
        b = self.kernel.b
        return b.gep(target, [b.mul(self.kernel["y_row"], const(row))])

    def run(
        self,
        source: Any,
        weights: Any,
        first: Any,
        last: Any,
        sums: list[Any],
        request: Callable[[Any], None] | None,
    ) -> list[Any]:
        """Add the products of depths ``first`` to ``last``, and call ``request`` for each."""
        b, kernel = self.kernel.b, self.kernel
        steps = kernel.address("step")

        def line(k: Any) -> Any:
            return b.gep(source, [b.mul(k, kernel["x_step"]) if self.even else kernel.entry(steps, k)])

        unrolled = b.add(first, b.mul(b.sdiv(b.sub(last, first), const(_UNROLLED)), const(_UNROLLED)))
        sums = self.depths(weights, first, unrolled, sums, line, request, _UNROLLED)
        return self.depths(weights, unrolled, last, sums, line, request)

    def depths(
        self,
        weights: Any,
        first: Any,
        last: Any,
        sums: list[Any],
        line: Callable[[Any], Any],
        request: Callable[[Any], None] | None,
        at_a_time: int = 1,
    ) -> list[Any]:
        """Add the products of one depth; ``line`` is the offset of its row of x."""
        b, kernel = self.kernel.b, self.kernel

        def inner(start: Any, sums: list[Any]) -> list[Any]:
            for more in range(at_a_time):
                k = b.add(start, const(more)) if more else start
                if request:
                    request(k)
                xs = [kernel.load(line(k), const(4 * self.width * v), self.type) for v in range(self.vectors)]
                place = kernel.entry(kernel.address("w_at"), k) if self.listed else b.mul(k, kernel["w_step"])
                column = b.gep(weights, [place])
                new = []
                for r in range(self.rows):
                    factor = kernel.load(column, b.mul(kernel["w_row"], const(r)), FLOAT)
                    wide = kernel.splat(factor, self.width)
                    new += [kernel.intrinsic("fma", wide, x, sums[r * self.vectors + v]) for v, x in enumerate(xs)]
                sums = new
            return sums

        return repeat(b, last, sums, inner, start=first, step=at_a_time)

    def store(self, sums: list[Any], target: Any, t: Any) -> None:
        b, kernel = self.kernel.b, self.kernel
        columns = self.columns_of_extras(t)
        for r in range(self.rows):
            line = self.line(target, r)
            for v in range(self.vectors):
                value = self.function_of(sums[r * self.vectors + v], line, v, columns)
                value = b.fptrunc(value, self.stored) if self.half else value
                kernel.store(value, line, const(self.size * v), 2 if self.half else 4)

    def columns_of_extras(self, t: Any) -> dict[str, list[Any]]:
        """The operands with a number for each column, which all rows share."""
        kinds = [kind for kind in self.form[1] if kind != RESULT] if self.form else []
        named = zip(EXTRAS, kinds, strict=False)
        return {name: self.of_columns(self.kernel.address(name), t) for name, kind in named if kind == "column"}

    def function_of(self, value: Any, line: Any, v: int, columns: dict[str, list[Any]]) -> Any:
        """What is stored for ``value``, in vector ``v`` of a line of y."""
        if self.form is None:
            return value

        def load(name: str, kind: str) -> Any:
            if kind == "column":
                return columns[name][v]
            return self.kernel.load(self.kernel.b.gep(line, [self.kernel[name]]), const(self.size * v), self.type)

        return stored_value(self.kernel, self.form, value, load)
