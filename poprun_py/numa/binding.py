"""Binding: restriction of this process, and all that it starts, to CPUs and memory nodes (Linux)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import NamedTuple

from poprun_py.numa.placement import Placement

__all__ = ["bind", "memory_policy"]


class _CallNumbers(NamedTuple):
    """Numbers of the two system calls, which the C library does not wrap."""

    set_mempolicy: int
    get_mempolicy: int


#: Machine -> its numbers.
_CALL_NUMBERS = {
    "x86_64": _CallNumbers(238, 239),
    "aarch64": _CallNumbers(237, 236),
    "riscv64": _CallNumbers(237, 236),
    "loongarch64": _CallNumbers(237, 236),
    "ppc64le": _CallNumbers(261, 260),
    "s390x": _CallNumbers(270, 269),
}

_BIND = 2  # MPOL_BIND

#: The largest number of memory nodes that a kernel supports (CONFIG_NODES_SHIFT of 10).
_MOST_NODES = 1024
_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)
_Mask = ctypes.c_ulong * (_MOST_NODES // _WORD)
_libc = ctypes.CDLL(None, use_errno=True)


def bind(placement: Placement) -> str:
    """Bind CPUs and memory; return what failed (a container may forbid it), empty if nothing did."""
    if not placement.bound:
        return ""
    problems = []
    try:
        os.sched_setaffinity(0, placement.cpus)
    except OSError as error:
        problems.append(f"it cannot be bound to its CPUs: {error.strerror}")
    if placement.memory:
        try:
            _call("set_mempolicy", ctypes.c_long(_BIND), _mask(placement.memory), ctypes.c_ulong(_MOST_NODES + 1))
        except OSError as error:
            problems.append(f"it cannot be bound to its memory nodes: {error.strerror}")
    return "; ".join(problems)


def memory_policy() -> tuple[int, set[int]]:
    """Return the memory policy of this process (0: default, 2: bound) and its nodes."""
    mode, mask = ctypes.c_int(), _Mask()
    _call("get_mempolicy", ctypes.byref(mode), mask, ctypes.c_ulong(_MOST_NODES + 1), None, ctypes.c_ulong(0))
    nodes = {word * _WORD + bit for word, bits in enumerate(mask) for bit in range(_WORD) if bits >> bit & 1}
    return mode.value, nodes


def _mask(nodes: Iterable[int]) -> ctypes.Array[ctypes.c_ulong]:
    mask = _Mask()
    for node in nodes:
        mask[node // _WORD] |= 1 << node % _WORD
    return mask


def _call(name: str, *arguments: object) -> None:
    """Make one of the two system calls; raise OSError if it fails, or is unknown on this machine."""
    numbers = _CALL_NUMBERS.get(os.uname().machine)
    if numbers is None:
        raise OSError(0, f"unknown on {os.uname().machine}")
    if _libc.syscall(ctypes.c_long(getattr(numbers, name)), *arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
