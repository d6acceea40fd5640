"""lanes: element i of several tensors at once, which compiled code knows not to overlap, and stores past the caches.

LLVM gives up on a loop over more than a few tensors, because it would have to compare all their addresses first.
Here every access says in which lane (tensor) it is, and that the others are elsewhere.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.np.unsafe import ndarray

from gcl.half import bfloat_of_float, float_of_bfloat, float_of_half, half_of_float
from gcl.jit import intrinsic, overload

__all__ = ["LINE", "fetch", "first_of", "narrowed", "put", "stream_line", "total", "widened"]

#: The first elements of an array, as many as a literal says, as a tuple (compiled code only).
first_of: Any = ndarray.to_fixed_tuple
LINE = 64  # bytes that ``stream_line`` stores
_LANES = 8
_Uniform: Any = types.UniTuple
_WORDS = ir.VectorType(ir.IntType(32), LINE // 4)


def _in_lane(builder: Any, access: Any, lane: int) -> None:
    """Mark a load or a store: none of another lane touches the same memory."""
    domain = builder.module.add_metadata(["gcl lanes"])
    scopes = [builder.module.add_metadata([f"gcl lane {number}", domain]) for number in range(_LANES)]
    access.set_metadata("alias.scope", builder.module.add_metadata([scopes.pop(lane)]))
    access.set_metadata("noalias", builder.module.add_metadata(scopes))


def _element(context: Any, builder: Any, dtype: Any, address: Any, index: Any) -> Any:
    pointer = builder.inttoptr(address, context.get_value_type(dtype).as_pointer())
    return builder.gep(pointer, [index])


@intrinsic
def fetch(typing_context: Any, addresses: Any, index: Any, witness: Any) -> Any:
    """Element ``index`` behind each of a tuple of addresses; ``witness`` is an array of their dtype."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = []
        for lane in range(addresses.count):
            address = builder.extract_value(arguments[0], lane)
            values.append(builder.load(_element(context, builder, witness.dtype, address, arguments[1])))
            _in_lane(builder, values[-1], lane)
        return context.make_tuple(builder, signature.return_type, values)

    return _Uniform(witness.dtype, addresses.count)(addresses, types.int64, witness), codegen


@intrinsic
def put(typing_context: Any, addresses: Any, index: Any, value: Any, witness: Any) -> Any:
    """Store ``value`` as element ``index`` behind each of a tuple of addresses; what is behind lane 0 of a ``fetch``
    may be lane 0 here, and so on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        for lane in range(addresses.count):
            address = builder.extract_value(arguments[0], lane)
            element = _element(context, builder, witness.dtype, address, arguments[1])
            _in_lane(builder, builder.store(arguments[2], element), lane)
        return context.get_dummy_value()

    return types.void(addresses, types.int64, witness.dtype, witness), codegen


@intrinsic
def stream_line(typing_context: Any, to: Any, frm: Any) -> Any:
    """Copy a line to ``to``, which begins on one, without reading it into the caches first."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (builder.inttoptr(address, _WORDS.as_pointer()) for address in arguments)
        store = builder.store(builder.load(source, align=1), target, align=LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _half_to_sum(value: Any) -> Any:
    return float_of_half(value)


def _bfloat_to_sum(value: Any) -> Any:
    return float_of_bfloat(value)


def _unchanged(value: Any) -> Any:
    return value


def widened(value: Any) -> Any:
    """A stored element in the dtype of the sums (compiled code only)."""


def narrowed(value: Any, target: Any) -> Any:
    """A sum in the dtype of ``target`` (compiled code only)."""


def total(values: Any) -> Any:
    """The sum of a tuple of stored elements, in tree order (compiled code only)."""


@overload(widened)
def _widened(value: Any) -> Any:
    return {types.uint16: _half_to_sum, types.int16: _bfloat_to_sum}.get(value, _unchanged)


@overload(narrowed)
def _narrowed(value: Any, target: Any) -> Any:
    if target.dtype == types.uint16:
        return lambda value, target: half_of_float(value)
    if target.dtype == types.int16:
        return lambda value, target: bfloat_of_float(value)
    return lambda value, target: value


@overload(total)
def _total(values: Any) -> Any:
    return {
        1: lambda values: widened(values[0]),
        2: lambda values: widened(values[0]) + widened(values[1]),
        4: lambda values: total(values[:2]) + total(values[2:]),
        8: lambda values: total(values[:4]) + total(values[4:]),
    }[values.count]
