"""copies: bytes copied, or cleared, between addresses by compiled code."""

from __future__ import annotations

from typing import Any

from numba import types

from gcl.jit import jit
from gcl.lanes import LINE, put, stream_line

__all__ = ["STREAMED_BYTES", "copy_bytes", "copy_part", "stream_bytes", "zero_range"]

#: What is written as a whole goes past the caches from this size on, when it would only empty them.
STREAMED_BYTES = 8 << 20

_memcpy: Any = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))


@jit
def copy_bytes(to: int, frm: int, n: int) -> None:
    """Copy ``n`` bytes between addresses that do not overlap, or are the same."""
    if to != frm:
        _memcpy(to, frm, n)


@jit
def stream_bytes(to: int, frm: int, n: int) -> None:
    """The same past the caches: half as long for what does not fit them, longer for what does."""
    head = min(n, -to % LINE)
    lines = (n - head) // LINE * LINE
    copy_bytes(to, frm, head)
    for at in range(head, head + lines, LINE):
        stream_line(to + at, frm + at)
    copy_bytes(to + head + lines, frm + head + lines, n - head - lines)


@jit
def copy_part(to: int, frm: int, n: int, whole: int) -> None:
    """Copy ``n`` of the ``whole`` bytes that this rank is about to write."""
    if whole >= STREAMED_BYTES and to != frm:
        stream_bytes(to, frm, n)
    else:
        copy_bytes(to, frm, n)


@jit
def zero_range(address: int, start: int, stop: int, target: Any) -> None:
    """Set elements [start, stop) after ``address`` to zero."""
    for index in range(start, stop):
        put((address,), index, 0, target)
