"""Dot kernel: the products of rows with rows, both read where they are stored.

    out[m, k]  =  sum over t, v of g[m, at(t) + v] * x[from(t) + step(k) + v]      v = 0 .. lanes - 1

``from``, ``at`` and ``step`` are tables of byte offsets, as for ``product``. A block of sums stays in registers
while t runs. The order of a sum is the same on every processor: lane v adds the products of number v of every tile,
in the order of tiles, with fused multiply-adds; lanes v and v + lanes / 2 are added, and so on in halves; then the
products of the ``rest`` numbers behind the last tile are added in their order.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ipu_emu.ops.codegen.llvm_builder import FLOAT, NamedKernel, const, repeat
from ipu_emu.ops.codegen.llvm_compiler import LANES, generated, vector_width

#: Names of the arguments, in order; strides in bytes.
DOTS = [
    "x", "g", "out", "from", "at", "step", "rest", "tiles", "columns", "blocks", "g_row", "out_row", "out_column",
    "add", "batch", "x_batch", "g_batch", "out_batch",
]  # fmt: skip


def dot_block() -> int:
    """Rows of g, and rows of x, whose sums are in registers at a time."""
    return 4 if vector_width() == LANES else 2


@generated
def dots(rows: int, columns: int, lanes: int = LANES) -> str:
    """``rows`` x ``columns`` sums at a time, each as partial sums in ``lanes``, added up at the end."""
    kernel = NamedKernel("dots", DOTS)
    kernel.loop(kernel["batch"], lambda n: _dots_of(kernel, n, rows, columns, lanes))
    return kernel.finish()


def _dots_of(kernel: NamedKernel, n: Any, rows: int, columns: int, width: int) -> None:
    b = kernel.b
    vector = ir.VectorType(FLOAT, width)
    zero = ir.Constant(vector, [0.0] * width)
    x = kernel.address("x", (n, kernel["x_batch"]))
    g = kernel.address("g", (n, kernel["g_batch"]))
    out = kernel.address("out", (n, kernel["out_batch"]))

    def block(m: Any) -> None:
        left = b.gep(g, [b.mul(b.mul(m, const(rows)), kernel["g_row"])])
        line = b.gep(out, [b.mul(b.mul(m, const(rows)), kernel["out_row"])])
        lefts = [b.gep(left, [b.mul(kernel["g_row"], const(r))]) for r in range(rows)]

        def column(k: Any) -> None:
            steps = [kernel.entry(kernel.address("step"), b.add(k, const(c))) for c in range(columns)]
            sources = [b.gep(x, [step]) for step in steps]

            def added(origin: Any, place: Any, type: Any, sums: list[Any]) -> list[Any]:
                xs = [kernel.load(source, origin, type) for source in sources]
                gs = [kernel.load(source, place, type) for source in lefts]
                pairs = [(g, x) for g in gs for x in xs]
                return [kernel.intrinsic("fma", *pair, total) for pair, total in zip(pairs, sums, strict=True)]

            def inner(t: Any, sums: list[Any]) -> list[Any]:
                origin, place = (kernel.entry(kernel.address(name), t) for name in ("from", "at"))
                return added(origin, place, vector, sums)

            def behind(t: Any, sums: list[Any]) -> list[Any]:
                place = b.mul(b.add(t, b.mul(kernel["tiles"], const(width))), const(4))
                return added(place, place, FLOAT, sums)

            sums = repeat(b, kernel["tiles"], [zero] * (rows * columns), inner)
            totals = repeat(b, kernel["rest"], [kernel.across(vector, b.fadd) for vector in sums], behind)
            for number, total in enumerate(totals):
                r, c = divmod(number, columns)
                where = b.mul(b.add(k, const(c)), kernel["out_column"])
                _store(kernel, total, b.gep(line, [b.mul(kernel["out_row"], const(r))]), where)

        kernel.loop(kernel["columns"], column, step=columns)

    kernel.loop(kernel["blocks"], block)


def _store(kernel: NamedKernel, total: Any, line: Any, where: Any) -> None:
    b = kernel.b
    with b.if_else(b.icmp_signed("!=", kernel["add"], const(0))) as (then, otherwise):
        with then:
            kernel.store(b.fadd(kernel.load(line, where, FLOAT), total), line, where)
        with otherwise:
            kernel.store(total, line, where)
