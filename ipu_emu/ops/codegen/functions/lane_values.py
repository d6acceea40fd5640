"""Lane values: a number of a kernel, or a vector of them, as an object on which arithmetic appends instructions.

Products and sums round separately; only ``times_plus`` is fused. So no bit depends on what a processor can fuse.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ipu_emu.ops.codegen.llvm_builder import DOUBLE, FLOAT, I32, I64, Emitter, vector_like


def number(value: float, like: Any) -> Any:
    """``value`` as a constant of the type of ``like``, rounded to float32 if that is float32."""
    type = like.type
    element = type.element if isinstance(type, ir.VectorType) else type
    exact = struct.unpack("f", struct.pack("f", value))[0] if element == FLOAT else value
    return ir.Constant(type, [exact] * type.count if element is not type else exact)


class Lanes:
    """``value`` of float32, float64, integers or truth values; numbers beside it take its type."""

    def __init__(self, k: Emitter, value: Any) -> None:
        self.k, self.value = k, value

    def new(self, value: Any) -> Lanes:
        return Lanes(self.k, value)

    def like(self, other: Lanes | float) -> Lanes:
        return other if isinstance(other, Lanes) else self.new(number(other, self.value))

    def _pair(self, name: str, other: Lanes | float) -> Lanes:
        prefix = "" if self.is_integer else "f"
        return self.new(getattr(self.k.b, prefix + name)(self.value, self.like(other).value))

    @property
    def is_integer(self) -> bool:
        type = self.value.type
        return isinstance(type.element if isinstance(type, ir.VectorType) else type, ir.IntType)

    def __add__(self, other: Lanes | float) -> Lanes:
        return self._pair("add", other)

    def __sub__(self, other: Lanes | float) -> Lanes:
        return self._pair("sub", other)

    def __mul__(self, other: Lanes | float) -> Lanes:
        return self._pair("mul", other)

    def __truediv__(self, other: Lanes | float) -> Lanes:
        return self._pair("div", other)

    def __rsub__(self, other: float) -> Lanes:
        return self.like(other) - self

    def __rtruediv__(self, other: float) -> Lanes:
        return self.like(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Lanes:
        return self.new(self.k.b.fneg(self.value))

    def __abs__(self) -> Lanes:
        return self.intrinsic("fabs")

    def times_plus(self, factor: Lanes | float, term: Lanes | float) -> Lanes:
        """self * factor + term, rounded once."""
        return self.intrinsic("fma", factor, term)

    def intrinsic(self, name: str, *others: Lanes | float) -> Lanes:
        """LLVM's intrinsic ``name`` of this value and ``others``; its result must be exact or correctly rounded."""
        return self.new(self.k.intrinsic(name, self.value, *(self.like(other).value for other in others)))

    def polynomial(self, coefficients: Sequence[float]) -> Lanes:
        """Horner's rule, highest power first."""
        total = self.like(coefficients[0])
        for coefficient in coefficients[1:]:
            total = total.times_plus(self, coefficient)
        return total

    # Comparisons: false for NaN, except !=

    def __lt__(self, other: Lanes | float) -> Lanes:
        return self.new(self.k.b.fcmp_ordered("<", self.value, self.like(other).value))

    def __gt__(self, other: Lanes | float) -> Lanes:
        return self.new(self.k.b.fcmp_ordered(">", self.value, self.like(other).value))

    def equals(self, other: Lanes | float) -> Lanes:
        return self.new(self.k.b.fcmp_ordered("==", self.value, self.like(other).value))

    def is_set(self) -> Lanes:
        """Whether an integer is not 0."""
        return self.new(self.k.b.icmp_unsigned("!=", self.value, self.like(0).value))

    def is_nan(self) -> Lanes:
        return self.new(self.k.b.fcmp_unordered("uno", self.value, self.value))

    def then(self, yes: Lanes, no: Lanes | float) -> Lanes:
        """``yes`` where this truth value holds, else ``no``."""
        return yes.new(self.k.b.select(self.value, yes.value, yes.like(no).value))

    # Bits

    def bits(self) -> Lanes:
        """The bits of float64 as a 64-bit integer, of float32 as a 32-bit one."""
        type = self.value.type
        element = type.element if isinstance(type, ir.VectorType) else type
        return self.new(self.k.b.bitcast(self.value, vector_like(I32 if element == FLOAT else I64, type)))

    def as_float(self, element: Any) -> Lanes:
        """Bits as the number that they mean."""
        return self.new(self.k.b.bitcast(self.value, vector_like(element, self.value.type)))

    def has_sign(self) -> Lanes:
        """Whether a float64 is negative, or -0."""
        return (self.bits() >> 63).is_set()

    def signed_as(self, other: Lanes) -> Lanes:
        """This float64, which is not negative, with the sign of ``other``.

        LLVM rounds copysign to half by a function that is not linked, where it has no instruction for that.
        """
        return (self.bits() ^ ((other.bits() >> 63) << 63)).as_float(DOUBLE)

    def __and__(self, other: Lanes | int) -> Lanes:
        return self.new(self.k.b.and_(self.value, self.like(other).value))

    def __or__(self, other: Lanes | int) -> Lanes:
        return self.new(self.k.b.or_(self.value, self.like(other).value))

    def __invert__(self) -> Lanes:
        return self.new(self.k.b.not_(self.value))

    def __xor__(self, other: Lanes) -> Lanes:
        return self.new(self.k.b.xor(self.value, other.value))

    def __lshift__(self, count: int) -> Lanes:
        return self.new(self.k.b.shl(self.value, self.like(count).value))

    def __rshift__(self, count: int) -> Lanes:
        """Shift zeros in."""
        return self.new(self.k.b.lshr(self.value, self.like(count).value))
