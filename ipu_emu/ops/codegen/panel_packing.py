"""Panel packing: a matrix cut into strips whose rows are adjacent, as ``product`` reads them fastest.

rows      source [k, strips * width], neighbours in a row      ->  target [strips, k, width], float32
columns   source [strips * width, k], neighbours in a row      ->  target [strips, k, width], float32
taps      source [k, strips * width, all taps]                 ->  target [strips, k, taps, width], float32
squares   source [row, column], neighbours in a row            ->  target [column, row], neighbours in a column
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ipu_emu.ops.codegen.llvm_builder import FLOAT, HALF, I32, I64, Kernel, const
from ipu_emu.ops.codegen.llvm_compiler import generated

#: The size of the squares that ``panels_of_columns`` transposes at a time.
BLOCK = 8
#: Rows that ``panels_of_rows`` packs at a time: packing strip by strip through all rows would evict the cache lines
#: of long rows before the next strip reads them.
LINES = 128


@generated
def panels_of_rows(width: int, half: bool) -> str:
    """Arguments: source, target, strips, k, bytes of a row of the source."""
    kernel = Kernel("panels_of_rows", 5)
    b = kernel.b
    source, target = kernel.pointer(0), kernel.pointer(1)
    strips, depth, row_bytes = kernel.arguments[2:]
    size = 2 if half else 4

    def lines(first: Any) -> None:
        last = kernel.smaller(b.add(first, const(LINES)), depth)

        def strip(s: Any) -> None:
            start = b.gep(source, [b.mul(s, const(size * width))])
            out = b.gep(target, [b.mul(b.mul(s, depth), const(4 * width))])

            def line(k: Any) -> None:
                value = _load(kernel, start, b.mul(k, row_bytes), width, half)
                kernel.store(value, out, b.mul(k, const(4 * width)))

            kernel.loop(last, line, start=first)

        kernel.loop(strips, strip)

    kernel.loop(depth, lines, step=LINES)
    return kernel.finish()


@generated
def panels_of_columns(width: int, half: bool) -> str:
    """Arguments: source, target, strips, k (a multiple of BLOCK), bytes of a row of the source; matrices, and bytes
    of one in the source and in the target.
    """
    kernel = Kernel("panels_of_columns", 8)
    b = kernel.b
    strips, depth, row_bytes, batch, source_bytes, target_bytes = kernel.arguments[2:]
    size = 2 if half else 4

    def matrix(n: Any) -> None:
        source = b.gep(kernel.pointer(0), [b.mul(n, source_bytes)])
        target = b.gep(kernel.pointer(1), [b.mul(n, target_bytes)])
        kernel.loop(strips, lambda s: strip(s, source, target))

    def strip(s: Any, source: Any, target: Any) -> None:
        start = b.gep(source, [b.mul(b.mul(s, const(width)), row_bytes)])
        out = b.gep(target, [b.mul(b.mul(s, depth), const(4 * width))])

        def block(k: Any) -> None:
            for first in range(0, width, BLOCK):
                count, lines = min(BLOCK, width - first), []
                for r in range(first, first + count):
                    at = b.add(b.mul(row_bytes, const(r)), b.mul(k, const(size)))
                    lines.append(_load(kernel, start, at, BLOCK, half))
                square = [*lines, *lines[-1:] * (BLOCK - count)]
                for number, column in enumerate(_transposed(kernel, square)):
                    at = b.add(b.mul(b.add(k, const(number)), const(4 * width)), const(4 * first))
                    kernel.store(_first(kernel, column, count), out, at)

        kernel.loop(depth, block, step=BLOCK)

    kernel.loop(batch, matrix)
    return kernel.finish()


@generated
def panels_of_taps(width: int, taps: tuple[int, ...], half: bool) -> str:
    """Arguments: source, target, strips, k, bytes between rows of taps and between those of two k in the source.

    ``taps`` are the places in a row of those that are copied.
    """
    kernel = Kernel("panels_of_taps", 6)
    b = kernel.b
    strips, depth, row_bytes, next_bytes = kernel.arguments[2:]
    size, type = (2, HALF) if half else (4, FLOAT)

    def strip(s: Any) -> None:
        start = b.gep(kernel.pointer(0), [b.mul(b.mul(s, const(width)), row_bytes)])
        out = b.gep(kernel.pointer(1), [b.mul(b.mul(s, depth), const(4 * width * len(taps)))])

        def line(k: Any) -> None:
            source = b.gep(start, [b.mul(k, next_bytes)])
            target = b.gep(out, [b.mul(k, const(4 * width * len(taps)))])
            for c in range(width):
                row = b.gep(source, [b.mul(row_bytes, const(c))])
                for number, tap in enumerate(taps):
                    value = kernel.load(row, const(size * tap), type, size)
                    value = b.fpext(value, FLOAT) if half else value
                    kernel.store(value, target, const(4 * (number * width + c)))

        kernel.loop(depth, line)

    kernel.loop(strips, strip)
    return kernel.finish()


@generated
def squares() -> str:
    """Transpose float32 matrices, a square of BLOCK x BLOCK numbers at a time; the last ones may overlap others.

    Arguments: source, target, offsets of the rows in the source and of the columns in the target, rows, columns (at
    least BLOCK of each); then matrices along two axes, and bytes between those in the source and in the target.
    """
    kernel = Kernel("squares", 12)
    b = kernel.b
    froms, tos = kernel.pointer(2), kernel.pointer(3)
    rows, columns, outer, inner = kernel.arguments[4:8]
    last = [b.sub(count, const(BLOCK)) for count in (rows, columns)]

    def places(table: Any, first: Any) -> list[Any]:
        return [kernel.load(table, b.mul(b.add(first, const(i)), const(8)), I64, 8) for i in range(BLOCK)]

    def matrix(i: Any, j: Any) -> None:
        source, target = (
            b.gep(kernel.pointer(which), [b.add(b.mul(i, bytes[0]), b.mul(j, bytes[1]))])
            for which, bytes in ((0, kernel.arguments[8:10]), (1, kernel.arguments[10:12]))
        )

        def column(c: Any) -> None:
            c = kernel.smaller(c, last[1])
            outs = places(tos, c)

            def row(r: Any) -> None:
                r = kernel.smaller(r, last[0])
                at = b.mul(c, const(4))
                lines = [_load(kernel, source, b.add(place, at), BLOCK, half=False) for place in places(froms, r)]
                for line, out in zip(_transposed(kernel, lines), outs, strict=True):
                    kernel.store(line, target, b.add(out, b.mul(r, const(4))))

            kernel.loop(rows, row, step=BLOCK)

        kernel.loop(columns, column, step=BLOCK)

    kernel.loop(outer, lambda i: kernel.loop(inner, lambda j: matrix(i, j)))
    return kernel.finish()


def _load(kernel: Kernel, pointer: Any, at: Any, width: int, half: bool) -> Any:
    value = kernel.load(pointer, at, ir.VectorType(HALF if half else FLOAT, width), 2 if half else 4)
    return kernel.b.fpext(value, ir.VectorType(FLOAT, width)) if half else value


def _first(kernel: Kernel, vector: Any, count: int) -> Any:
    """The first ``count`` of BLOCK numbers."""
    mask = ir.Constant(ir.VectorType(I32, count), list(range(count)))
    return vector if count == BLOCK else kernel.b.shuffle_vector(vector, vector, mask)


def _transposed(kernel: Kernel, lines: list[Any]) -> list[Any]:
    """Transpose a square of rows: exchange halves, then quarters, and so on."""
    count, distance = len(lines), len(lines) // 2
    while distance:
        rows = list(lines)
        for i in range(count):
            if i & distance:
                continue
            low = [j if not j & distance else count + j - distance for j in range(count)]
            high = [j + distance if not j & distance else count + j for j in range(count)]
            for place, picks in ((i, low), (i + distance, high)):
                mask = ir.Constant(ir.VectorType(I32, count), picks)
                rows[place] = kernel.b.shuffle_vector(lines[i], lines[i + distance], mask)
        lines, distance = rows, distance // 2
    return lines
