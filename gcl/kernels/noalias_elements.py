"""lanes: element i of several tensors at once, which compiled code knows not to overlap; compiler input, not Python.

LLVM gives up on a loop over more than a few tensors, because it would have to compare all their addresses first.
Here every access says in which lane (tensor) it is, and that the others are elsewhere. A tensor may yet be written
that is read in another lane, because its element i is read before it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from gcl.kernels.half import narrow_bfloat, narrow_half, widen_bfloat, widen_half

__all__ = ["LANES", "Elements", "stored", "sums"]

LANES = 9  # eight to read, and one to write
_FLOAT, _DOUBLE, _LONG = ir.FloatType(), ir.DoubleType(), ir.IntType(64)


class Elements(NamedTuple):
    """How elements lie in memory, and how a value comes from there and goes there."""

    memory: Any
    widen: Callable[[Any, Any], Any]
    narrow: Callable[[Any, Any], Any]

    def read(self, builder: Any, address: Any, index: Any, lane: int) -> Any:
        """Element ``index`` behind ``address``."""
        load = builder.load(self._pointer(builder, address, index))
        _in_lane(builder, load, lane)
        return self.widen(builder, load)

    def write(self, builder: Any, address: Any, index: Any, lane: int, value: Any) -> None:
        """Store ``value`` as element ``index`` behind ``address``."""
        store = builder.store(self.narrow(builder, value), self._pointer(builder, address, index))
        _in_lane(builder, store, lane)

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


#: What kernels see a dtype as: its elements, and the type of its sums (gcl.kernels.dtypes).
_KINDS: dict[str, tuple[Elements, Any]] = {
    "float32": (Elements(_FLOAT, _same, _same), _FLOAT),
    "float64": (Elements(_DOUBLE, _same, _same), _DOUBLE),
    "uint16": (Elements(ir.IntType(16), widen_half, narrow_half), _FLOAT),
    "int16": (Elements(ir.IntType(16), widen_bfloat, narrow_bfloat), _FLOAT),
    "int8": (Elements(ir.IntType(8), _signed, _wrap(8)), _LONG),
    "uint8": (Elements(ir.IntType(8), _unsigned, _wrap(8)), _LONG),
    "int32": (Elements(ir.IntType(32), _signed, _wrap(32)), _LONG),
    "uint32": (Elements(ir.IntType(32), _unsigned, _wrap(32)), _LONG),
    "int64": (Elements(_LONG, _same, _same), _LONG),
}


def stored(name: str) -> Elements:
    """Elements as a tensor of the dtype that kernels see as ``name`` holds them."""
    return _KINDS[name][0]


def sums(name: str) -> Elements:
    """Elements of what that dtype is combined in."""
    return Elements(_KINDS[name][1], _same, _same)


def _in_lane(builder: Any, access: Any, lane: int) -> None:
    """Mark a load or a store: none of another lane touches the same memory."""
    domain = builder.module.add_metadata(["gcl lanes"])
    scopes = [builder.module.add_metadata([f"gcl lane {number}", domain]) for number in range(LANES)]
    access.set_metadata("alias.scope", builder.module.add_metadata([scopes.pop(lane)]))
    access.set_metadata("noalias", builder.module.add_metadata(scopes))
