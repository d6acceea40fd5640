"""Element loops: operations on the elements of a block, compiled once per dtype and called by address.

    stored      elements as tensors hold them
    sums        elements of what they are combined in: half types round once, at the end, and integers wrap once

The kernels that decide what is to be done know no dtype: they are given the address, and are compiled once for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from gcl.kernels.dtypes import witness
from gcl.kernels.jit import address_of, bare, intrinsic, pointer_to
from gcl.kernels.noalias_elements import LANES, Elements, stored, sums
from gcl.kernels.numba_internals import for_range

__all__ = ["DIVIDE", "IN_PLACE", "MORE", "ONTO", "ROUND", "SQUARE", "SUM", "loop", "loops_of"]

_OUT = LANES - 1  # the lane that is written
_WORD, _DOUBLE = ir.IntType(64), ir.DoubleType()


class _Block(NamedTuple):
    """What a loop is emitted for: compiler values, but for the two kinds of elements."""

    builder: Any
    stored: Elements
    sums: Elements
    at: Any
    offset: Any
    n: Any
    divisor: Any
    out: Any


_Emit = Callable[[_Block], None]
_Combine = Callable[[Any, Any, Any], Any]


def _add(builder: Any, left: Any, right: Any) -> Any:
    return builder.fadd(left, right) if _is_float(left) else builder.add(left, right)


def _multiply(builder: Any, left: Any, right: Any) -> Any:
    return builder.fmul(left, right) if _is_float(left) else builder.mul(left, right)


def _extreme(order: str) -> _Combine:
    def combine(builder: Any, left: Any, right: Any) -> Any:
        """The lesser or the greater; NaN wins, as in numpy."""
        if not _is_float(left):
            return builder.select(builder.icmp_signed(order, right, left), right, left)
        takes = builder.or_(builder.fcmp_ordered(order, right, left), builder.fcmp_unordered("uno", right, right))
        return builder.select(takes, right, left)

    return combine


def _quotient(builder: Any, value: Any, divisor: Any) -> Any:
    """By way of float64, which gives float32 the same bits; integers towards zero."""
    by = builder.sitofp(divisor, _DOUBLE)
    if not _is_float(value):
        return builder.fptosi(builder.fdiv(builder.sitofp(value, _DOUBLE), by), value.type)
    if value.type == _DOUBLE:
        return builder.fdiv(value, by)
    return builder.fptrunc(builder.fdiv(builder.fpext(value, _DOUBLE), by), value.type)


def _is_float(value: Any) -> bool:
    return isinstance(value.type, ir.FloatType | ir.DoubleType)


def _tree(builder: Any, values: list[Any]) -> Any:
    """The sum of 2^k values, neighbours first."""
    while len(values) > 1:
        values = [_add(builder, *pair) for pair in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _sum(count: int, out: str = "", /) -> _Emit:
    """Add stored elements of ``count`` tensors, whose addresses ``at`` lists, less ``offset``.

    The result goes to ``out``, as the "sums" or the "stored" elements there, or else to where it was read.
    """

    def emit(block: _Block) -> None:
        builder, memory = block.builder, block.stored
        table = builder.inttoptr(block.at, _WORD.as_pointer())
        listed = [builder.load(builder.gep(table, [_WORD(lane)])) for lane in range(count)]
        lanes = list(enumerate(builder.add(address, block.offset) for address in listed))
        with for_range(builder, block.n) as each:
            total = _tree(builder, [memory.read(builder, address, each.index, lane) for lane, address in lanes])
            for lane, address in [(_OUT, block.out)] if out else lanes:
                elements = block.sums if out == "sums" else memory
                elements.write(builder, address, each.index, lane, total)

    return emit


def _combine(combine: _Combine) -> _Emit:
    """Combine the sums behind ``out`` with those behind ``at``."""

    def emit(block: _Block) -> None:
        builder, sums = block.builder, block.sums
        with for_range(builder, block.n) as each:
            left = sums.read(builder, block.out, each.index, _OUT)
            right = sums.read(builder, block.at, each.index, 0)
            sums.write(builder, block.out, each.index, _OUT, combine(builder, left, right))

    return emit


def _update(change: Callable[[Any, Any, Any], Any]) -> _Emit:
    """Change each of the sums behind ``out``, given the divisor."""

    def emit(block: _Block) -> None:
        builder, sums = block.builder, block.sums
        with for_range(builder, block.n) as each:
            value = sums.read(builder, block.out, each.index, _OUT)
            sums.write(builder, block.out, each.index, _OUT, change(builder, value, block.divisor))

    return emit


def _round(block: _Block) -> None:
    """Store the sums behind ``at`` behind ``out``."""
    with for_range(block.builder, block.n) as each:
        value = block.sums.read(block.builder, block.at, each.index, 0)
        block.stored.write(block.builder, block.out, each.index, _OUT, value)


_LOOPS: list[_Emit] = [
    *(_sum(count, "sums") for count in (1, 2, 4, 8)),
    *(_sum(count, "stored") for count in (1, 2, 4, 8)),
    *(_sum(count) for count in (2, 4)),
    *(_combine(combine) for combine in (_add, _multiply, _extreme("<"), _extreme(">"))),
    _update(lambda builder, value, _: _multiply(builder, value, value)),
    _update(_quotient),
    _round,
]
#: Where each family of loops begins.
SUM, ONTO, IN_PLACE, MORE, SQUARE, DIVIDE, ROUND = 0, 4, 8, 10, 14, 15, 16


def loops_of(dtype: np.dtype[Any]) -> int:
    """The address of the loops for ``dtype``."""
    pointer = pointer_to(getattr(types, witness(dtype).dtype.name))
    return address_of(_loops, *[types.int64] * 5, pointer)


@bare
def _loops(what: int, at: int, offset: int, n: int, divisor: int, out: Any) -> None:
    """Do ``_LOOPS[what]`` to ``n`` elements."""
    _all_loops(what, at, offset, n, divisor, out)


@intrinsic
def _all_loops(typing_context: Any, what: Any, at: Any, offset: Any, n: Any, divisor: Any, out: Any) -> Any:
    """The body of ``_loops``; the type of ``out`` says for which dtype."""
    name = str(out.dtype)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = builder.ptrtoint(arguments[5], _WORD)
        at, offset, n, divisor = arguments[1:5]
        block = _Block(builder, stored(name), sums(name), at, offset, n, divisor, to)
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
    """Call ``loops``, what ``loops_of`` returned."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.IntType(8).as_pointer(), [_WORD] * 6).as_pointer()
        builder.call(builder.inttoptr(arguments[0], function), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), codegen
