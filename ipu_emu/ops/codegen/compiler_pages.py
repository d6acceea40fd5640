"""Compiler pages: releases the memory of LLVM's own machine code after the kernels of a process are linked.

Loading kernels touches 48 MiB of it and compiling some 67 MiB, none of which a step needs. The pages are clean and
backed by a file, so the system reads them again, in about a millisecond, if another kernel is compiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from llvmlite.utils import get_library_name

_MAPS = Path("/proc/self/maps")
#: Drop the pages of a mapping from this process (madvise(2)).
_DONTNEED = 4


def give_back_compiler() -> None:
    """Drop the pages of LLVM's code from this process, if the system supports that."""
    libc = ctypes.CDLL(None)
    for start, end in _compiler_code():
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONTNEED)


@cache  # a loaded library is never moved
def _compiler_code() -> tuple[tuple[int, int], ...]:
    return tuple(code_of(get_library_name()))


def code_of(library: str) -> Iterator[tuple[int, int]]:
    """Yield the addresses (start, end) of the machine code of a loaded ``library``; no page of it can be dirty."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        addresses, permissions, *_, name = line.split(maxsplit=5)
        if permissions == "r-xp" and Path(name).name == library:
            start, end = (int(number, 16) for number in addresses.split("-"))
            yield start, end
