"""lending: bytes that are sent without being copied: the kernel sends straight from the pages of the sender.

    vmsplice    references to the pages go into a pipe
    splice      and from the pipe into the connection

Halves the work of a sender. The bytes must stay as they are until the receiver has them, which only the receiver can
tell (``message_channel``): the connection refers to the pages, it does not have their contents.

A loan is a line of words: the two ends of the pipe, the bytes that it holds, and room for a struct iovec.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from gcl.kernels.jit import bare
from gcl.kernels.system_calls import splice, vmsplice

__all__ = ["LOAN_WORDS", "can_lend", "lend", "open_pipe"]

LOAN_WORDS = 5
_IN, _OUT, _HELD, _VECTOR = 0, 1, 2, 3
_PIPE_BYTES = 1 << 19  # holds a piece of 256 KiB that begins within a page; the kernel rounds up to powers of two
_SET_PIPE_SIZE = 1031
_MOVE, _NONBLOCK, _MORE = 1, 2, 4


@bare
def lend(descriptor: int, loan: Any, address: int, nbytes: int, more: bool) -> Any:
    """Send from ``nbytes`` at ``address``, as many as go at once; how many went, -1 (errno) if none did.

    Who calls again goes on where the last call stopped. ``more``: more follows at once.
    """
    if loan[_HELD] < nbytes:
        loan[_VECTOR], loan[_VECTOR + 1] = address + loan[_HELD], nbytes - loan[_HELD]
        taken = vmsplice(loan[_IN], loan[_VECTOR:].ctypes.data, 1, _NONBLOCK)
        if taken < 0 and loan[_HELD] == 0:
            return taken
        loan[_HELD] += max(taken, 0)
    moved = splice(loan[_OUT], 0, descriptor, 0, loan[_HELD], _MOVE | _NONBLOCK | (_MORE if more else 0))
    loan[_HELD] -= max(moved, 0)
    return moved


def open_pipe() -> tuple[int, int] | None:
    """The ends of a new pipe, to write to and to read from; None where the process has no descriptors left."""
    try:
        out, into = os.pipe2(os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):  # it holds 64 KiB then, which is slower
        fcntl.fcntl(into, _SET_PIPE_SIZE, _PIPE_BYTES)
    return into, out


@cache
def can_lend() -> bool:
    """Try whether the system lets this process send a page through a pipe."""
    if not hasattr(os, "splice") or (ends := open_pipe()) is None:
        return False
    into, out = ends
    here, there = socket.socketpair()
    page = np.full(4096, 7, np.uint8)
    loan = np.array([into, out, 0, 0, 0], np.int64)
    try:
        sent = lend(here.fileno(), loan, page.ctypes.data, page.nbytes, False)
        return bool(sent == page.nbytes and there.recv(page.nbytes) == page.tobytes())
    finally:
        for descriptor in ends:
            os.close(descriptor)
        here.close()
        there.close()
