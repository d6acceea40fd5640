"""LLVM builder: kernels under construction, and loops in place of LLVM's basic blocks.

total, = repeat(b, count, [zero], lambda i, values: [b.fadd(values[0], load(i))])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from llvmlite import ir

BYTE, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
FLOAT, HALF, DOUBLE = ir.FloatType(), ir.HalfType(), ir.DoubleType()
POINTER = BYTE.as_pointer()


def const(value: int) -> Any:
    return ir.Constant(I64, value)


def vector_like(type: Any, shape: Any) -> Any:
    """``type``, or a vector of it with the lanes of the type ``shape``."""
    return ir.VectorType(type, shape.count) if isinstance(shape, ir.VectorType) else type


def repeat(
    b: Any,
    stop: Any,
    carried: Sequence[Any],
    body: Callable[[Any, list[Any]], Sequence[Any]],
    *,
    start: Any = None,
    step: int = 1,
) -> list[Any]:
    """``for i in range(start, stop, step): carried = body(i, carried)``; the last ``carried``."""
    start = const(0) if start is None else start
    before = b.block
    head, inside, after = (b.append_basic_block(name) for name in ("head", "body", "after"))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(start, before)
    values = []
    for value in carried:
        phi = b.phi(value.type)
        phi.add_incoming(value, before)
        values.append(phi)
    b.cbranch(b.icmp_signed("<", index, stop), inside, after)
    b.position_at_end(inside)
    results = body(index, list(values))
    index.add_incoming(b.add(index, const(step)), b.block)
    for phi, value in zip(values, results, strict=True):
        phi.add_incoming(value, b.block)
    b.branch(head)
    b.position_at_end(after)
    return values


class Emitter:
    """Appends instructions to a block of a function."""

    def __init__(self, b: Any) -> None:
        self.b, self.module = b, b.module

    def splat(self, value: Any, lanes: int) -> Any:
        """A vector with ``value`` in every lane."""
        undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
        start = self.b.insert_element(undefined, value, ir.Constant(I32, 0))
        return self.b.shuffle_vector(start, undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))

    def across(self, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
        """The lanes combined in halves: lanes i and i + n/2 first."""
        count = vector.type.count
        while count > 1:
            count //= 2
            picks = [ir.Constant(ir.VectorType(I32, count), [*range(s, s + count)]) for s in (0, count)]
            vector = combine(*(self.b.shuffle_vector(vector, vector, pick) for pick in picks))
        return self.b.extract_element(vector, ir.Constant(I32, 0))

    def intrinsic(self, name: str, *values: Any) -> Any:
        """Call ``llvm.name`` on values of one type."""
        type = values[0].type
        element, lanes = (type.element, f"v{type.count}") if isinstance(type, ir.VectorType) else (type, "")
        full = f"llvm.{name}.{lanes}{element.intrinsic_name}"
        return self.b.call(self.declared(full, type, [type] * len(values)), values)

    def declared(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:
        """The function ``name`` of the module, declared on first use."""
        function = self.module.globals.get(name)
        return function or ir.Function(self.module, ir.FunctionType(result, arguments), name)


class Kernel(Emitter):
    """A function under construction: one pointer to 64-bit arguments in, nothing out."""

    def __init__(self, name: str, arguments: int) -> None:
        self.name = name
        function = ir.Function(ir.Module(name), ir.FunctionType(ir.VoidType(), [POINTER]), name)
        super().__init__(ir.IRBuilder(function.append_basic_block("entry")))
        table = self.b.bitcast(function.args[0], I64.as_pointer())
        self.arguments = [self.b.load(self.b.gep(table, [const(i)])) for i in range(arguments)]

    def pointer(self, index: int) -> Any:
        """Argument ``index`` as a pointer to bytes."""
        return self.b.inttoptr(self.arguments[index], POINTER)

    def at(self, pointer: Any, offset: Any, type: Any) -> Any:
        """Pointer to ``type`` at ``offset`` bytes."""
        return self.b.bitcast(self.b.gep(pointer, [offset]), type.as_pointer())

    def load(self, pointer: Any, offset: Any, type: Any, align: int = 4) -> Any:
        return self.b.load(self.at(pointer, offset, type), align=align)

    def store(self, value: Any, pointer: Any, offset: Any, align: int = 4) -> None:
        self.b.store(value, self.at(pointer, offset, value.type), align=align)

    def prefetch(self, pointer: Any) -> None:
        """Request the cache line at ``pointer`` for a later read."""
        function = self.declared("llvm.prefetch.p0i8", ir.VoidType(), [POINTER, I32, I32, I32])
        read, near, data = 0, 2, 1
        self.b.call(function, [pointer, *(ir.Constant(I32, value) for value in (read, near, data))])

    def loop(self, stop: Any, body: Callable[[Any], object], *, start: Any = None, step: int = 1) -> None:
        """``for i in range(start, stop, step): body(i)``"""

        def run(i: Any, _: list[Any]) -> list[Any]:
            body(i)
            return []

        repeat(self.b, stop, [], run, start=start, step=step)

    def smaller(self, a: Any, b: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", a, b), a, b)

    def larger(self, a: Any, b: Any) -> Any:
        return self.b.select(self.b.icmp_signed(">", a, b), a, b)

    def finish(self) -> str:
        self.b.ret_void()
        return str(self.module)


class NamedKernel(Kernel):
    """``names`` in the order of the arguments; strides are in bytes. ``fixed`` arguments become constants."""

    def __init__(self, name: str, names: list[str], fixed: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(name, len(names))
        self.places = {name: index for index, name in enumerate(names)}
        self.fixed = {name: const(value) for name, value in fixed}

    def __getitem__(self, name: str) -> Any:
        return self.fixed[name] if name in self.fixed else self.arguments[self.places[name]]

    def address(self, name: str, *steps: tuple[Any, Any]) -> Any:
        """Pointer ``name`` advanced by the products of ``steps``."""
        pointer = self.pointer(self.places[name])
        for count, size in steps:
            pointer = self.b.gep(pointer, [self.b.mul(count, size)])
        return pointer

    def entry(self, table: Any, index: Any) -> Any:
        """``table[index]`` of a table of 64-bit numbers."""
        return self.load(table, self.b.mul(index, const(8)), I64)
