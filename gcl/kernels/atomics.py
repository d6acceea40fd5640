"""Atomics: atomic loads, stores and waits on shared memory, callable from compiled kernels.

All functions take a raw address, because the memory may not belong to an array of this process.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from gcl.kernels.jit import bare_part, intrinsic, pointer_to
from gcl.kernels.system_calls import syscall

_INT32 = ir.IntType(32)
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 202)
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1  # not the private variants: waiters may be in other processes


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _INT32.as_pointer())


@intrinsic
def load_acquire(typing_context: Any, address: Any) -> Any:
    """Load the int32 at ``address`` with acquire order: no later read is moved before it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_pointer(builder, arguments[0]), "acquire", 4, typ=_INT32)

    return types.int32(types.int64), codegen


@intrinsic
def store_release(typing_context: Any, address: Any, value: Any) -> Any:
    """Store int32 ``value`` at ``address`` with release order: no earlier write is moved after it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], _pointer(builder, arguments[0]), "release", 4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), codegen


@intrinsic
def exchange(typing_context: Any, address: Any, value: Any) -> Any:
    """Store int32 ``value`` at ``address`` as a full barrier; return the previous value."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", _pointer(builder, arguments[0]), arguments[1], "seq_cst")

    return types.int32(types.int64, types.int32), codegen


@intrinsic
def fetch_add(typing_context: Any, address: Any, value: Any) -> Any:
    """Add int32 ``value`` at ``address`` as a full barrier; return the previous value."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, arguments[0]), arguments[1], "seq_cst")

    return types.int32(types.int64, types.int32), codegen


@intrinsic
def pause(typing_context: Any) -> Any:
    """Give the processor the hint that this is a spin loop, if it has such an instruction."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if platform.machine() == "x86_64":
            hint = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", [], hint), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def words_at(typing_context: Any, address: Any) -> Any:
    """A pointer to the 64-bit words at ``address``, which can be indexed."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return pointer_to(types.int64)(types.int64), codegen


@bare_part
def futex_wait(address: int, expected: int, timespec: int) -> None:
    """Sleep while the int32 at ``address`` is ``expected``, at most for the struct timespec at ``timespec``."""
    syscall(_SYS_FUTEX, address, _FUTEX_WAIT, expected, timespec, 0, 0)


@bare_part
def futex_wake(address: int) -> None:
    """Wake all threads that sleep on ``address``."""
    syscall(_SYS_FUTEX, address, _FUTEX_WAKE, 0x7FFFFFFF, 0, 0, 0)


@bare_part
def has_reached(address: int, count: int) -> Any:
    """Whether the counter at ``address``, an int32 that may have wrapped round, is at ``count`` or beyond."""
    return np.int32(load_acquire(address) - np.int32(count)) >= 0
