"""jit: the one way kernels are compiled: cached on disk, without the GIL, without fast-math.

Fast-math stays off because results must not depend on how a loop was vectorised (layout invariance).

numba forgets a cached kernel when its own file changes. Kernels take in what they call from other files, so here it
is forgotten when any file changes that its own one imports, directly or not.

Processes that start together need the same kernels: one compiles each, the others wait and load it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast
from zlib import crc32

import numba
import numba.extending
import numpy as np
from numba import types
from numba.core.runtime.nrt import rtsys

from gcl.kernels.file_lock import held

__all__ = ["address_of", "bare", "bare_part", "bound", "intrinsic", "jit", "part", "pointer_to", "sources"]

#: Seconds to wait for another process that compiles a kernel; then this one does it too.
PATIENCE = 60.0

_ROOT = Path(__file__).parents[2]
_IMPORT = re.compile(rb"^(?:from|import) ((?:gcl|ipu_emu)\.[\w.]+)", re.MULTILINE)

#: What ``bound`` has compiled: looking it up in numba takes 200 us.
_BOUND: dict[tuple[object, ...], Callable[..., Any]] = {}

_KERNEL: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_BARE: dict[str, Any] = {**_KERNEL, "_nrt": False}
_WITHIN: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

F = TypeVar("F", bound=Callable[..., object])
R = TypeVar("R")


def jit(function: F) -> F:
    """Compile ``function`` on first call for the types it is called with; keep its signature for type checkers."""
    return _cached(function, _KERNEL)


def bare(function: F) -> F:
    """As ``jit``, for what neither makes arrays nor returns any: without counts of references it is compiled in half
    the time. It may call ``bare_part`` only."""
    return _cached(function, _BARE)


def _cached(function: F, options: dict[str, Any]) -> F:
    compiled: Any = numba.njit(cache=True, **options)(function)
    stored, index = compiled._cache, compiled._cache._cache_file
    index._source_stamp = index._source_stamp, sources(function.__code__.co_filename)
    once = _OneCompiles(stored)
    stored.load_overload, stored.save_overload = once.load_overload, once.save_overload
    return cast(F, compiled)


class _OneCompiles:
    """The two ways into numba's cache, with a lock from when a kernel is not found until it is saved.

    numba calls them with its own lock held, in one thread at a time. It reads what it knows of Python, 0.3 s, before
    it looks for a kernel; who finds one needs its run-time library only, and compiling reads the rest by itself.
    """

    def __init__(self, cache: Any) -> None:
        self._load, self._save = cache._load_overload, cache.save_overload
        self._lock = Path(f"{cache._cache_file._index_path}.lock")
        self._held = ExitStack()

    def load_overload(self, signature: object, context: Any) -> Any:
        self._held.close()  # of a kernel that did not compile
        rtsys.initialize(context)
        found = self._load(signature, context)
        if found is None:
            self._held.enter_context(held(self._lock, PATIENCE))
            found = self._load(signature, context)
            if found is not None:
                self._held.close()
        return found

    def save_overload(self, *made: object) -> None:
        self._save(*made)
        self._held.close()


def bound(kernel: Callable[..., R], *arguments: object) -> Callable[[], R]:
    """``kernel`` with its arguments, compiled for them: a call does not look at their types (0.3 us less for 4)."""
    kinds = kernel, *map(_kind, arguments)
    if kinds not in _BOUND:
        compiled: Any = kernel
        signature = tuple(map(numba.typeof, arguments))
        compiled.compile(signature)
        _BOUND[kinds] = compiled.get_overload(signature)
    return partial(_BOUND[kinds], *arguments)


def _kind(argument: object) -> object:
    """What numba compiles for; C and Fortran order, or memory that must not be written, are different kinds."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        return argument.dtype, argument.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned
    if isinstance(argument, int | float | np.generic):
        return type(argument)
    kind_of: Any = numba.typeof
    return kind_of(argument)


def address_of(kernel: Callable[..., object], *signature: object) -> int:
    """Where ``kernel``, compiled for these types, is called as a C function."""
    compiled: Any = kernel
    compiled.compile(signature)
    found = compiled.overloads[signature]
    return int(found.library.get_pointer_to_function(found.fndesc.llvm_cfunc_wrapper_name))


def sources(file: str) -> int:
    """A number that changes with ``file`` and with any file of this project that it imports, directly or not."""
    found, seen = [Path(file)], set()
    while found:
        path = found.pop()
        if path not in seen:
            seen.add(path)
            found += _contents(path)[1]
    return crc32(repr(sorted(_contents(path)[0] for path in seen)).encode())


@cache
def _contents(path: Path) -> tuple[int, list[Path]]:
    """Checksum of a file, and the files of this project that it imports."""
    text = path.read_bytes()
    places = [_ROOT.joinpath(*name.decode().split(".")) for name in _IMPORT.findall(text)]
    files = [option for place in places for option in (place.with_suffix(".py"), place / "__init__.py")]
    return crc32(text), [option for option in files if option.exists()]


def part(function: F) -> F:
    """As ``jit``, for what only compiled code calls: quicker to compile, because Python is given no way in."""
    return cast(F, numba.njit(**_KERNEL, **_WITHIN)(function))


def bare_part(function: F) -> F:
    """As ``part``, for what neither makes arrays nor keeps any."""
    return cast(F, numba.njit(**_BARE, **_WITHIN)(function))


def intrinsic(function: Callable[..., object]) -> Any:
    """numba's decorator for what is written in LLVM's terms: compiler input, not Python."""
    return numba.extending.intrinsic(function)


def pointer_to(dtype: Any) -> Any:
    """numba's type of a pointer to ``dtype``."""
    pointer: Any = types.CPointer
    return pointer(dtype)
