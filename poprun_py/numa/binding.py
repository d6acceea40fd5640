"""Binding: restriction of this process, and all that it starts, to CPUs and memory nodes (Linux)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from poprun_py.numa.placement import Placement

#: Machine -> the number of set_mempolicy, which the C library does not wrap.
_SET_MEMPOLICY = {
    "x86_64": 238,
    "aarch64": 237,
    "riscv64": 237,
    "loongarch64": 237,
    "ppc64le": 261,
    "s390x": 270,
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
            _bind_memory(placement.memory)
        except OSError as error:
            problems.append(f"it cannot be bound to its memory nodes: {error.strerror}")
    return "; ".join(problems)


def _bind_memory(nodes: Iterable[int]) -> None:
    """Raise OSError if the system call fails, or is unknown on this machine."""
    machine = os.uname().machine
    if machine not in _SET_MEMPOLICY:
        raise OSError(0, f"unknown on {machine}")
    mask = _Mask()
    for node in nodes:
        mask[node // _WORD] |= 1 << node % _WORD
    arguments = ctypes.c_long(_BIND), mask, ctypes.c_ulong(_MOST_NODES + 1)
    if _libc.syscall(ctypes.c_long(_SET_MEMPOLICY[machine]), *arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
