"""Copies: compiled code that copies or clears bytes at addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from gcl.kernels.jit import bare, bare_part, bound, intrinsic

#: Writes of at least this many bytes bypass the caches, which they would only evict.
STREAMED_BYTES = 8 << 20

_LOOPED_BYTES = 2048
_LINE = 64  # bytes
_WORDS = ir.VectorType(ir.IntType(32), _LINE // 4)
_memcpy: Any = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))
_memset: Any = types.ExternalFunction("memset", types.intp(types.intp, types.int32, types.intp))


def start_of(array: np.ndarray[Any, Any]) -> int:
    """Address of the first element."""
    return int(array.__array_interface__["data"][0])


def _copies_line(metadata: dict[str, int]) -> Any:
    """An intrinsic that copies a cache line; ``metadata``, if any, is added to the store, which is then aligned."""

    @intrinsic
    def copy_line(typing_context: Any, to: Any, frm: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            target, source = (builder.inttoptr(address, _WORDS.as_pointer()) for address in arguments)
            store = builder.store(builder.load(source, align=1), target, align=_LINE if metadata else 1)
            for name, value in metadata.items():
                store.set_metadata(name, builder.module.add_metadata([ir.IntType(32)(value)]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return copy_line


_copy_line, _stream_line = _copies_line({}), _copies_line({"nontemporal": 1})


@bare
def copy_bytes(to: int, frm: int, n: int) -> None:
    """Copy ``n`` bytes between ranges that do not overlap, or are the same.

    Long copies use a loop instead of memcpy, whose rep movsb takes 7 times as long on some processors if the target
    starts a few bytes further into its page than the source, as numpy's arrays do next to page-aligned memory.
    """
    if to == frm:
        return
    lines = n // _LINE * _LINE if n >= _LOOPED_BYTES else 0
    for at in range(0, lines, _LINE):
        _copy_line(to + at, frm + at)
    _memcpy(to + lines, frm + lines, n - lines)


@bare_part
def stream_bytes(to: int, frm: int, n: int) -> None:
    """As ``copy_bytes``, bypassing the caches: half the time for data that exceeds them, else slower."""
    head = min(n, -to % _LINE)
    lines = (n - head) // _LINE * _LINE
    copy_bytes(to, frm, head)
    for at in range(head, head + lines, _LINE):
        _stream_line(to + at, frm + at)
    copy_bytes(to + head + lines, frm + head + lines, n - head - lines)


@bare_part
def copy_part(to: int, frm: int, n: int, total: int) -> None:
    """Copy ``n`` of the ``total`` bytes that this rank writes in this call."""
    if total >= STREAMED_BYTES and to != frm:
        stream_bytes(to, frm, n)
    else:
        copy_bytes(to, frm, n)


def copy_array(out: np.ndarray, x: np.ndarray) -> None:
    """Copy ``x`` to ``out``; both are C-contiguous, of one dtype and size."""
    copy_bytes(out.ctypes.data, x.ctypes.data, x.nbytes)


def copying(out: np.ndarray, x: np.ndarray) -> Callable[[], object]:
    """A function that copies ``x`` to ``out`` at each call; it does not keep the arrays alive."""
    return bound(copy_bytes, out.ctypes.data, x.ctypes.data, x.nbytes)


@bare
def zero_bytes(to: int, n: int) -> None:
    """Clear ``n`` bytes; nothing if ``n`` is negative."""
    if n > 0:
        _memset(to, 0, n)
