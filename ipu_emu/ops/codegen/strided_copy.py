"""Strided copies: copies that change the storage order of an array, and convert between FLOAT and FLOAT16.

``pad``       rows of an image into a larger one, zeros around; with a stride only every s-th pixel
``relocate``  an array of up to four axes from one set of strides to another
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ipu_emu.ops.codegen.llvm_builder import FLOAT, HALF, Kernel, const
from ipu_emu.ops.codegen.llvm_compiler import generated, vector_width

#: The shortest vectors by which neighbours are copied.
_SHORT = 4
#: The longest runs that are copied without a loop.
SHORT_RUN = 32


class _Copier(Kernel):
    """Copies and zeroes runs of elements."""

    def __init__(self, name: str, arguments: int, source_half: bool, target_half: bool) -> None:
        super().__init__(name, arguments)
        self.types = HALF if source_half else FLOAT, HALF if target_half else FLOAT
        self.sizes = (2 if source_half else 4), (2 if target_half else 4)

    def run(self, target: Any, source: Any, count: Any, step: Any = None) -> None:
        """target[0:count] = source[0:count * step:step], the step in bytes; None for neighbours."""
        b, start = self.b, const(0)
        if step is None:
            step = const(self.sizes[0])
            width = vector_width()
            while width >= _SHORT:  # runs of a small batch are shorter than the processor's vectors
                vectored = b.mul(b.sdiv(count, const(width)), const(width))
                self._loop(target, source, start, vectored, width, step)
                start, width = vectored, width // 2
        self._loop(target, source, start, count, 1, step)

    def short_run(self, target: Any, source: Any, count: int) -> None:
        """target[0:count] = source[0:count] of neighbours, without a loop."""
        start, width = 0, vector_width()
        while start < count:
            while width > count - start:
                width //= 2
            kinds = [ir.VectorType(kind, width) if width > 1 else kind for kind in self.types]
            value = self.load(source, const(start * self.sizes[0]), kinds[0], self.sizes[0])
            self.store(self._converted(value, kinds[1]), target, const(start * self.sizes[1]), self.sizes[1])
            start += width

    def _loop(self, target: Any, source: Any, start: Any, stop: Any, width: int, step: Any) -> None:
        b = self.b
        kinds = [ir.VectorType(kind, width) if width > 1 else kind for kind in self.types]

        def body(i: Any) -> None:
            value = self.load(source, b.mul(i, step), kinds[0], self.sizes[0])
            self.store(self._converted(value, kinds[1]), target, b.mul(i, const(self.sizes[1])), self.sizes[1])

        self.loop(stop, body, start=start, step=width)

    def _converted(self, value: Any, kind: Any) -> Any:
        if self.types[0] is self.types[1]:
            return value
        return self.b.fpext(value, kind) if self.types[1] is FLOAT else self.b.fptrunc(value, kind)

    def zero(self, target: Any, count: Any) -> None:
        b, no = self.b, ir.Constant(ir.IntType(1), 0)
        memset = self.module.declare_intrinsic("llvm.memset", [target.type, count.type])
        b.call(memset, [target, ir.Constant(ir.IntType(8), 0), b.mul(count, const(self.sizes[1])), no])


@generated
def pad(half: bool, short: int = 0) -> str:
    """Runs have ``short`` elements, or any number with 0. Known ones are copied without a loop: a run of 8 in 1 ns,
    otherwise in 6.

    Arguments: source, target, channels, rows of the target, rows of the source, first row of the source (may be
    negative), stride of rows, bytes of a row and of a channel of the source, elements of a row of the target, zeros
    at its left, runs, elements of a run, bytes between runs. The target is float32.
    """
    kernel = _Copier("pad", 14, half, False)
    b = kernel.b
    source, target = kernel.pointer(0), kernel.pointer(1)
    channels, rows, height, first, stride, row_bytes, channel_bytes = kernel.arguments[2:9]
    line, left, runs, run, run_bytes = kernel.arguments[9:]
    inner = b.mul(runs, run)

    def row(index: Any) -> None:
        c, u = b.sdiv(index, rows), b.srem(index, rows)
        r = b.add(b.mul(u, stride), first)
        out = b.gep(target, [b.mul(b.mul(index, line), const(4))])
        inside = b.and_(b.icmp_signed(">=", r, const(0)), b.icmp_signed("<", r, height))
        with b.if_else(inside) as (then, otherwise):
            with then:
                at = b.gep(source, [b.add(b.mul(c, channel_bytes), b.mul(r, row_bytes))])
                kernel.zero(out, left)

                def copy(n: Any) -> None:
                    place = b.gep(out, [b.mul(b.add(left, b.mul(n, run)), const(4))])
                    pixels = b.gep(at, [b.mul(n, run_bytes)])
                    kernel.short_run(place, pixels, short) if short else kernel.run(place, pixels, run)

                kernel.loop(runs, copy)
                end = b.add(left, inner)
                kernel.zero(b.gep(out, [b.mul(end, const(4))]), b.sub(line, end))
            with otherwise:
                kernel.zero(out, line)

    kernel.loop(b.mul(channels, rows), row)
    return kernel.finish()


@generated
def relocate(source_half: bool, target_half: bool, neighbours: bool) -> str:
    """Arguments: source, target, 4 sizes, 4 strides of the source, 4 of the target, in bytes; the last of the target
    is that of neighbours, and so is the last of the source where ``neighbours`` says so.
    """
    kernel = _Copier("relocate", 14, source_half, target_half)
    b = kernel.b
    sizes, froms, tos = kernel.arguments[2:6], kernel.arguments[6:10], kernel.arguments[10:14]

    def level(axis: int, source: Any, target: Any) -> None:
        if axis == 3:
            kernel.run(target, source, sizes[3], None if neighbours else froms[3])
            return

        def body(i: Any) -> None:
            level(axis + 1, b.gep(source, [b.mul(i, froms[axis])]), b.gep(target, [b.mul(i, tos[axis])]))

        kernel.loop(sizes[axis], body)

    level(0, kernel.pointer(0), kernel.pointer(1))
    return kernel.finish()
