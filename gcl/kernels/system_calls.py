"""System calls: functions of the C library and the kernel that compiled code may call."""

from __future__ import annotations

from typing import Any

from numba import types

__all__ = [
    "errno_location",
    "poll",
    "process_vm_readv",
    "process_vm_writev",
    "recv",
    "sched_getcpu",
    "sched_yield",
    "send",
    "splice",
    "syscall",
    "vmsplice",
]

_INT, _WORD = types.intc, types.intp


def _external(name: str, result: Any, *arguments: Any) -> Any:
    """The C function ``name``; numba checks what it is called with."""
    return types.ExternalFunction(name, result(*arguments))


sched_getcpu = _external("sched_getcpu", types.int32)
sched_yield = _external("sched_yield", types.int32)
syscall = _external("syscall", _WORD, *[_WORD] * 7)
process_vm_readv = _external("process_vm_readv", _WORD, *[_WORD] * 6)
process_vm_writev = _external("process_vm_writev", _WORD, *[_WORD] * 6)
send = _external("send", _WORD, _INT, _WORD, _WORD, _INT)
recv = _external("recv", _WORD, _INT, _WORD, _WORD, _INT)
poll = _external("poll", _INT, _WORD, _WORD, _INT)
errno_location = _external("__errno_location", _WORD)
vmsplice = _external("vmsplice", _WORD, _INT, _WORD, _WORD, types.uintc)
splice = _external("splice", _WORD, _INT, _WORD, _INT, _WORD, _WORD, types.uintc)
