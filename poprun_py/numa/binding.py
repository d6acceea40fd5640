"""Binding: keeps this process, and all it starts, on given CPUs and memory nodes (Linux)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from poprun_py.numa.placement import Placement

__all__ = ["bind", "memory_policy"]

#: Machine -> parse_cpu_list of the system calls set_mempolicy and get_mempolicy, which the C library has no name for.
_CALLS = {
    "x86_64": (238, 239),
    "aarch64": (237, 236),
    "riscv64": (237, 236),
    "loongarch64": (237, 236),
    "ppc64le": (261, 260),
    "s390x": (270, 269),
}

_BIND = 2  # MPOL_BIND

#: Most memory nodes that a kernel is built for (CONFIG_NODES_SHIFT of 10).
_MOST_NODES = 1024
_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)
_Mask = ctypes.c_ulong * (_MOST_NODES // _WORD)
_libc = ctypes.CDLL(None, use_errno=True)


def bind(placement: Placement) -> str:
    """Bind CPUs and memory; return what could not be done (a container may forbid it), or nothing."""
    if not placement.bound:
        return ""
    problems = []
    try:
        os.sched_setaffinity(0, placement.cpus)
    except OSError as error:
        problems.append(f"it cannot be bound to its CPUs: {error.strerror}")
    if placement.memory:
        try:
            _call(0, ctypes.c_long(_BIND), _mask(placement.memory), ctypes.c_ulong(_MOST_NODES + 1))
        except OSError as error:
            problems.append(f"it cannot be bound to its memory nodes: {error.strerror}")
    return "; ".join(problems)


def memory_policy() -> tuple[int, set[int]]:
    """The policy of this process (0: the default, 2: bound) and the nodes that it names."""
    mode, mask = ctypes.c_int(), _Mask()
    _call(1, ctypes.byref(mode), mask, ctypes.c_ulong(_MOST_NODES + 1), None, ctypes.c_ulong(0))
    nodes = {word * _WORD + bit for word, bits in enumerate(mask) for bit in range(_WORD) if bits >> bit & 1}
    return mode.value, nodes


def _mask(nodes: Iterable[int]) -> ctypes.Array[ctypes.c_ulong]:
    mask = _Mask()
    for node in nodes:
        mask[node // _WORD] |= 1 << node % _WORD
    return mask


def _call(which: int, *arguments: object) -> None:
    """Make one of the two system calls; raise OSError where the kernel, or this machine, does not have it."""
    parse_cpu_list = _CALLS.get(os.uname().machine)
    if parse_cpu_list is None:
        raise OSError(0, f"unknown on {os.uname().machine}")
    if _libc.syscall(ctypes.c_long(parse_cpu_list[which]), *arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
