"""System calls: functions of the C library, and functions given by address, that compiled kernels can call."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from gcl.kernels.jit import intrinsic

_INT, _WORD = types.intc, types.intp
_INT32, _INT64 = ir.IntType(32), ir.IntType(64)


def _external(name: str, result: Any, *arguments: Any) -> Any:
    """The C function ``name``; numba checks the types of its arguments."""
    return types.ExternalFunction(name, result(*arguments))


clock_gettime = _external("clock_gettime", _INT, _INT, _WORD)
nanosleep = _external("nanosleep", _INT, _WORD, _WORD)
sched_getcpu = _external("sched_getcpu", types.int32)
sched_yield = _external("sched_yield", types.int32)
syscall = _external("syscall", _WORD, *[_WORD] * 7)
process_vm_readv = _external("process_vm_readv", _WORD, *[_WORD] * 6)
process_vm_writev = _external("process_vm_writev", _WORD, *[_WORD] * 6)


def _call(arguments: int) -> Any:
    """Signature and code generator of a call, by address, of a C function that returns an int."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        function = ir.FunctionType(_INT32, [_INT64] * arguments)
        return builder.call(builder.inttoptr(values[0], function.as_pointer()), values[1:])

    return types.int32(*[types.int64] * (1 + arguments)), codegen


@intrinsic
def call_with_2(typing_context: Any, address: Any, a: Any, b: Any) -> Any:
    """Call the function at ``address`` with two integers or pointers."""
    return _call(2)


@intrinsic
def call_with_4(typing_context: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Call the function at ``address`` with four integers or pointers."""
    return _call(4)
