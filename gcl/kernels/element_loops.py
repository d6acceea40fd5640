"""Element loops: operations on the elements of a block, compiled once per dtype and called by address.

    stored      elements as tensors hold them
    sums        elements of the wider type in which they are combined, so half types round, and integers wrap, once

numba supports no half types on CPUs, so kernels take arrays of them as views of their bits (uint16 for float16, int16
for bfloat16) and convert each element; the loops vectorise, to F16C instructions if the processor has them.

The kernels that choose an operation are independent of the dtype: they take the address of the loops, and are
compiled once.

LLVM does not vectorise a loop over more than a few tensors, because it would have to compare all addresses first.
Here each tensor has an alias scope: every access declares that accesses of other scopes do not touch its memory. A
tensor may nevertheless be read in one scope and written in another: its element i is read before it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from gcl.kernels.dtypes import type_tag
from gcl.kernels.jit import address_of, bare, intrinsic, pointer_to
from gcl.kernels.numba_internals import for_range

#: Tensors in one loop: eight are read, and one is written.
_SCOPES = 9
_FLOAT, _DOUBLE, _LONG = ir.FloatType(), ir.DoubleType(), ir.IntType(64)
_HALF, _INT16, _INT32 = ir.HalfType(), ir.IntType(16), ir.IntType(32)


class _Elements(NamedTuple):
    """A representation of elements in memory, and the conversions from and to a value."""

    memory: Any
    widen: Callable[[Any, Any], Any]
    narrow: Callable[[Any, Any], Any]

    def read(self, builder: Any, address: Any, index: Any, scope: int) -> Any:
        """Load element ``index`` of the array at ``address``."""
        load = builder.load(self._pointer(builder, address, index))
        _in_scope(builder, load, scope)
        return self.widen(builder, load)

    def write(self, builder: Any, address: Any, index: Any, scope: int, value: Any) -> None:
        """Store ``value`` as element ``index`` of the array at ``address``."""
        store = builder.store(self.narrow(builder, value), self._pointer(builder, address, index))
        _in_scope(builder, store, scope)

    def _pointer(self, builder: Any, address: Any, index: Any) -> Any:
        return builder.gep(builder.inttoptr(address, self.memory.as_pointer()), [index])


def _same(builder: Any, value: Any) -> Any:
    return value


def _signed(builder: Any, value: Any) -> Any:
    return builder.sext(value, _LONG)


def _unsigned(builder: Any, value: Any) -> Any:
    return builder.zext(value, _LONG)


def _wrap(bits: int) -> Callable[[Any, Any], Any]:
    return lambda builder, value: builder.trunc(value, ir.IntType(bits))


def widen_half(builder: Any, bits: Any) -> Any:
    """float32 value of the half with these 16 bits (exact)."""
    return builder.fpext(builder.bitcast(bits, _HALF), _FLOAT)


def narrow_half(builder: Any, value: Any) -> Any:
    """16 bits of the half nearest to a float32, ties to even."""
    return builder.bitcast(builder.fptrunc(value, _HALF), _INT16)


def widen_bfloat(builder: Any, bits: Any) -> Any:
    """float32 value of the bfloat16 with these 16 bits (exact: they are its upper half)."""
    return builder.bitcast(builder.shl(builder.zext(bits, _INT32), _INT32(16)), _FLOAT)


def narrow_bfloat(builder: Any, value: Any) -> Any:
    """16 bits of the bfloat16 nearest to a float32, ties to even; NaN stays NaN."""
    bits = builder.bitcast(value, _INT32)
    odd = builder.and_(builder.lshr(bits, _INT32(16)), _INT32(1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, _INT32(0x7FFF))), _INT32(16))
    quiet = builder.or_(builder.lshr(bits, _INT32(16)), _INT32(0x40))
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.trunc(builder.select(is_nan, quiet, rounded), _INT16)


#: Representation of a dtype in kernels -> its elements, and those of its sums (gcl.kernels.dtypes).
_KINDS: dict[str, tuple[_Elements, Any]] = {
    "float32": (_Elements(_FLOAT, _same, _same), _FLOAT),
    "float64": (_Elements(_DOUBLE, _same, _same), _DOUBLE),
    "uint16": (_Elements(ir.IntType(16), widen_half, narrow_half), _FLOAT),
    "int16": (_Elements(ir.IntType(16), widen_bfloat, narrow_bfloat), _FLOAT),
    "int8": (_Elements(ir.IntType(8), _signed, _wrap(8)), _LONG),
    "uint8": (_Elements(ir.IntType(8), _unsigned, _wrap(8)), _LONG),
    "int32": (_Elements(ir.IntType(32), _signed, _wrap(32)), _LONG),
    "uint32": (_Elements(ir.IntType(32), _unsigned, _wrap(32)), _LONG),
    "int64": (_Elements(_LONG, _same, _same), _LONG),
}


def _stored(name: str) -> _Elements:
    """Elements as stored in tensors of the dtype that kernels see as ``name``."""
    return _KINDS[name][0]


def _sums(name: str) -> _Elements:
    """Elements of the wider type in which that dtype is combined."""
    return _Elements(_KINDS[name][1], _same, _same)


def _in_scope(builder: Any, access: Any, scope: int) -> None:
    """Put a load or a store into an alias scope: no access of another scope touches the same memory."""
    domain = builder.module.add_metadata(["gcl tensors"])
    scopes = [builder.module.add_metadata([f"gcl tensor {number}", domain]) for number in range(_SCOPES)]
    access.set_metadata("alias.scope", builder.module.add_metadata([scopes.pop(scope)]))
    access.set_metadata("noalias", builder.module.add_metadata(scopes))


#: The scope of the tensor that is written.
_OUT = _SCOPES - 1
_WORD = ir.IntType(64)


class _LoopContext(NamedTuple):
    """The context of a loop that is emitted: compiler values, and the two kinds of elements."""

    builder: Any
    stored: _Elements
    sums: _Elements
    at: Any
    offset: Any
    n: Any
    divisor: Any
    out: Any


_Emit = Callable[[_LoopContext], None]
_Combine = Callable[[Any, Any, Any], Any]


def _add(builder: Any, left: Any, right: Any) -> Any:
    return builder.fadd(left, right) if _is_float(left) else builder.add(left, right)


def _multiply(builder: Any, left: Any, right: Any) -> Any:
    return builder.fmul(left, right) if _is_float(left) else builder.mul(left, right)


def _extreme(order: str) -> _Combine:
    def combine(builder: Any, left: Any, right: Any) -> Any:
        """The lesser or the greater value; NaN if either is NaN, as in numpy."""
        if not _is_float(left):
            return builder.select(builder.icmp_signed(order, right, left), right, left)
        takes = builder.or_(builder.fcmp_ordered(order, right, left), builder.fcmp_unordered("uno", right, right))
        return builder.select(takes, right, left)

    return combine


def _quotient(builder: Any, value: Any, divisor: Any) -> Any:
    """Divide floats in their type, which has every number of ranks exactly; integers round towards zero."""
    if _is_float(value):
        return builder.fdiv(value, builder.sitofp(divisor, value.type))
    by = builder.sitofp(divisor, _DOUBLE)
    return builder.fptosi(builder.fdiv(builder.sitofp(value, _DOUBLE), by), value.type)


def _is_float(value: Any) -> bool:
    return isinstance(value.type, ir.FloatType | ir.DoubleType)


def _tree(builder: Any, values: list[Any]) -> Any:
    """The sum of 2^k values, neighbours first."""
    while len(values) > 1:
        values = [_add(builder, *pair) for pair in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _sum(count: int, out: str = "", /, *, divided: bool = False) -> _Emit:
    """Add stored elements of ``count`` tensors, which start ``offset`` bytes after the addresses listed at ``at``.

    The result is ``divided`` by the divisor if asked, and written to ``out``, as "sums" or "stored" elements, or else
    back to all tensors that were read.
    """

    def emit(block: _LoopContext) -> None:
        builder, memory = block.builder, block.stored
        table = builder.inttoptr(block.at, _WORD.as_pointer())
        listed = [builder.load(builder.gep(table, [_WORD(scope)])) for scope in range(count)]
        tensors = list(enumerate(builder.add(address, block.offset) for address in listed))
        with for_range(builder, block.n) as item:
            total = _tree(builder, [memory.read(builder, address, item.index, scope) for scope, address in tensors])
            if divided:
                total = _quotient(builder, total, block.divisor)
            for scope, address in [(_OUT, block.out)] if out else tensors:
                elements = block.sums if out == "sums" else memory
                elements.write(builder, address, item.index, scope, total)

    return emit


def _combine(combine: _Combine) -> _Emit:
    """Combine the sums at ``out`` with those at ``at``."""

    def emit(block: _LoopContext) -> None:
        builder, sums = block.builder, block.sums
        with for_range(builder, block.n) as item:
            left = sums.read(builder, block.out, item.index, _OUT)
            right = sums.read(builder, block.at, item.index, 0)
            sums.write(builder, block.out, item.index, _OUT, combine(builder, left, right))

    return emit


def _update(change: Callable[[Any, Any, Any], Any]) -> _Emit:
    """Apply ``change`` to each of the sums at ``out`` and the divisor."""

    def emit(block: _LoopContext) -> None:
        builder, sums = block.builder, block.sums
        with for_range(builder, block.n) as item:
            value = sums.read(builder, block.out, item.index, _OUT)
            sums.write(builder, block.out, item.index, _OUT, change(builder, value, block.divisor))

    return emit


def _round(block: _LoopContext) -> None:
    """Store the sums at ``at`` to ``out``, in the dtype of the tensor."""
    with for_range(block.builder, block.n) as item:
        value = block.sums.read(block.builder, block.at, item.index, 0)
        block.stored.write(block.builder, block.out, item.index, _OUT, value)


#: In the order of ElementLoop.
_LOOPS: list[_Emit] = [
    *(_sum(count, "sums") for count in (1, 2, 4, 8)),
    *(_sum(count, "stored") for count in (1, 2, 4, 8)),
    *(_sum(count) for count in (2, 4)),
    *(_sum(count, divided=True) for count in (2, 4)),
    *(_combine(combine) for combine in (_add, _multiply, _extreme("<"), _extreme(">"))),
    _update(lambda builder, value, _: _multiply(builder, value, value)),
    _update(_quotient),
    _round,
]


class ElementLoop(IntEnum):
    """The number of each loop; if several differ only in the number of tensors, that of the first."""

    SUM = 0  # add 1, 2, 4 or 8 tensors into sums
    ONTO = 4  # add 1, 2, 4 or 8 tensors into stored elements
    IN_PLACE = 8  # add 2 or 4 tensors into themselves
    MEAN_IN_PLACE = 10  # the same, divided by the divisor
    ADD = 12  # add sums to sums
    MULTIPLY = 13  # multiply sums by sums
    MINIMUM = 14  # the lesser of two sums
    MAXIMUM = 15  # the greater of two sums
    SQUARE = 16  # square sums
    DIVIDE = 17  # divide sums by the divisor
    ROUND = 18  # convert sums to stored elements


def loops_of(dtype: np.dtype[Any]) -> int:
    """The address of the loops for ``dtype``."""
    pointer = pointer_to(getattr(types, type_tag(dtype).dtype.name))
    return address_of(_loops, *[types.int64] * 5, pointer)


@bare
def _loops(what: int, at: int, offset: int, n: int, divisor: int, out: Any) -> None:
    """Run ``_LOOPS[what]`` on ``n`` elements."""
    _all_loops(what, at, offset, n, divisor, out)


@intrinsic
def _all_loops(typing_context: Any, what: Any, at: Any, offset: Any, n: Any, divisor: Any, out: Any) -> Any:
    """The body of ``_loops``, for the dtype of ``out``."""
    name = str(out.dtype)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = builder.ptrtoint(arguments[5], _WORD)
        at, offset, n, divisor = arguments[1:5]
        block = _LoopContext(builder, _stored(name), _sums(name), at, offset, n, divisor, to)
        done = builder.append_basic_block("done")
        choice = builder.switch(arguments[0], done)
        for number, emit in enumerate(_LOOPS):
            start = builder.append_basic_block("loop")
            choice.add_case(_WORD(number), start)
            builder.position_at_end(start)
            emit(block)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5, out), codegen


@intrinsic
def loop(typing_context: Any, loops: Any, what: Any, at: Any, offset: Any, n: Any, divisor: Any, out: Any) -> Any:
    """Call ``loops``, an address that ``loops_of`` returned."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.IntType(8).as_pointer(), [_WORD] * 6).as_pointer()
        builder.call(builder.inttoptr(arguments[0], function), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), codegen
