"""copies: bytes copied, or cleared, between addresses by compiled code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from gcl.jit import bare, bare_part, intrinsic

__all__ = ["STREAMED_BYTES", "copy_bytes", "copy_part", "stream_bytes", "zero_bytes"]

#: What is written as a whole goes past the caches from this size on, when it would only empty them.
STREAMED_BYTES = 8 << 20

_LINE = 64  # bytes
_WORDS = ir.VectorType(ir.IntType(32), _LINE // 4)
_memcpy: Any = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))
_memset: Any = types.ExternalFunction("memset", types.intp(types.intp, types.int32, types.intp))


@intrinsic
def _stream_line(typing_context: Any, to: Any, frm: Any) -> Any:
    """Copy a line to ``to``, which begins on one, without reading it into the caches first."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, source = (builder.inttoptr(address, _WORDS.as_pointer()) for address in arguments)
        store = builder.store(builder.load(source, align=1), target, align=_LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@bare
def copy_bytes(to: int, frm: int, n: int) -> None:
    """Copy ``n`` bytes between addresses that do not overlap, or are the same."""
    if to != frm:
        _memcpy(to, frm, n)


@bare_part
def stream_bytes(to: int, frm: int, n: int) -> None:
    """The same past the caches: half as long for what does not fit them, longer for what does."""
    head = min(n, -to % _LINE)
    lines = (n - head) // _LINE * _LINE
    copy_bytes(to, frm, head)
    for at in range(head, head + lines, _LINE):
        _stream_line(to + at, frm + at)
    copy_bytes(to + head + lines, frm + head + lines, n - head - lines)


@bare_part
def copy_part(to: int, frm: int, n: int, whole: int) -> None:
    """Copy ``n`` of the ``whole`` bytes that this rank is about to write."""
    if whole >= STREAMED_BYTES and to != frm:
        stream_bytes(to, frm, n)
    else:
        copy_bytes(to, frm, n)


@bare
def zero_bytes(to: int, n: int) -> None:
    """Clear ``n`` bytes, none if that is negative."""
    if n > 0:
        _memset(to, 0, n)
