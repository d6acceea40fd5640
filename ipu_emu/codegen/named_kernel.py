"""NamedKernel: a kernel under construction whose arguments have names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ipu_emu.codegen.llvm_builder import I64, Kernel, const, repeat

__all__ = ["NamedKernel"]


class NamedKernel(Kernel):
    """``names`` in the order of the arguments; strides are in bytes. Those that are ``fixed`` become constants."""

    def __init__(self, name: str, names: list[str], fixed: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(name, len(names))
        self.places = {name: place for place, name in enumerate(names)}
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

    def each(self, count: Any, body: Callable[[Any], None], step: int = 1) -> None:
        """``for i in range(0, count, step): body(i)``"""

        def run(i: Any, _: list[Any]) -> list[Any]:
            body(i)
            return []

        repeat(self.b, count, [], run, step=step)

    def smaller(self, a: Any, b: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", a, b), a, b)
