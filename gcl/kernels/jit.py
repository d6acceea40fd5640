"""Kernel compiler: numba with a cache on disk, without the GIL and without fast-math.

Fast-math stays off because results must not depend on how a loop was vectorised (layout invariance).

numba discards a cached kernel when the kernel's own file changes. Kernels inline what they call from other files, so
here it is also discarded when any file changes that its own file imports, directly or not.

Processes that start together need the same kernels: one compiles each, the others wait and load it.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from zlib import crc32

import numba
import numba.extending
import numpy as np
from numba import types

from gcl.kernels.file_lock import held
from gcl.kernels.numba_internals import WITHOUT_REFERENCE_COUNTS, KernelCache, initialise_runtime
from gcl.kernels.numba_internals import address_of as _address_of
from gcl.kernels.uninterrupted import uninterrupted
from popdist_py.files.trusted_files import file_fault, folder_fault

#: Seconds to wait for another process that compiles a kernel; after that this process compiles it too.
PATIENCE = 60.0

_IMPORT = re.compile(r"^(?:from|import) +([\w.]+)(?: +import +(\([^)]*\)|.*))?", re.MULTILINE)
_NAME = re.compile(r"\w+")

_KERNEL: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_BARE: dict[str, Any] = {**_KERNEL, **WITHOUT_REFERENCE_COUNTS}
_WITHIN: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

F = TypeVar("F", bound=Callable[..., object])
R = TypeVar("R")

_typeof: Any = numba.typeof
_from_dtype: Any = numba.from_dtype
_array: Any = types.Array


def jit(function: F) -> F:
    """Compile ``function`` on first call for the types it is called with; keep its signature for type checkers."""
    return _cached(function, _KERNEL)


def bare(function: F) -> F:
    """As ``jit``, for a function that neither creates nor returns arrays; it may call only ``bare_part`` functions.

    Without reference counts it compiles in half the time.
    """
    return _cached(function, _BARE)


def _cached(function: F, options: dict[str, Any]) -> F:
    try:
        if _lacks_home(function):
            raise RuntimeError("no locator")
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError as error:
        if "no locator" not in str(error):
            raise
        warn_once(
            "compiled kernels are not cached: neither the folder of their source nor the cache in your home can be "
            "written to; set NUMBA_CACHE_DIR to a folder of your own"
        )
        return cast(F, numba.njit(**options)(function))
    stored = KernelCache(compiled)
    stored.add_stamp(sources(function))
    shared = SharedCache(stored, function.__code__.co_filename)
    stored.replace(shared.load, shared.save)
    return cast(F, compiled)


def _lacks_home(function: Callable[..., object]) -> bool:
    """Whether numba would keep kernels in a home that this user does not have: in a folder "~" of the working folder.

    That is numba's choice if it can write neither next to the source nor to a folder that a variable names.
    """
    if any(map(os.environ.get, ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"))) or os.path.expanduser("~") != "~":
        return False
    folder = os.path.dirname(os.path.abspath(function.__code__.co_filename))
    compiled = os.path.join(folder, "__pycache__")
    return not os.access(compiled if os.path.isdir(compiled) else folder, os.W_OK)


class SharedCache:
    """Loads and saves a kernel in numba's cache; a kernel that is not found is locked until it has been saved.

    numba calls these methods with its own lock held, in one thread at a time. Before it looks for a kernel, numba
    loads its rules for typing Python, which takes 0.3 s. This is left out here: a kernel that is found needs only the
    run-time library, and compiling loads the rules by itself.
    """

    def __init__(self, stored: KernelCache, source: str) -> None:
        self._stored, self._source = stored, source
        self._lock = Path(f"{stored.index}.lock")
        self._held = ExitStack()
        stored.check_files(self._fault)

    def load(self, signature: object, context: Any) -> Any:
        self._held.close()  # the lock of a kernel that failed to compile
        with uninterrupted():
            initialise_runtime(context)
        if not self._is_trusted():
            return None
        kernel = self._stored_kernel(signature, context)
        if kernel is None:
            self._held.enter_context(held(self._lock, PATIENCE))
            kernel = self._stored_kernel(signature, context)
            if kernel is not None:
                self._held.close()
        return kernel

    def _stored_kernel(self, signature: object, context: Any) -> Any:
        with uninterrupted():
            return self._stored.load(signature, context)

    def save(self, *entry: object) -> None:
        try:
            if self._is_trusted():
                self._stored.save(*entry)
        except OSError as error:
            warn_once(f"compiled kernels cannot be written to {self._lock.parent}: {error.strerror}")
        finally:
            self._held.close()

    def _is_trusted(self) -> bool:
        folder = self._lock.parent
        fault = folder_fault(folder, source=self._source) if folder.exists() else ""
        if fault:
            warn_once(
                f"compiled kernels are not cached in {folder}: {fault}; set NUMBA_CACHE_DIR to a folder of your own"
            )
        return not fault

    def _fault(self, path: str) -> str:
        fault = file_fault(path, source=self._source)
        if fault:
            warn_once(f"a compiled kernel is not used: {fault}; it is compiled again")
        return fault


@lru_cache(maxsize=64)  # once per process for each folder or file
def warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def bound(kernel: Callable[..., R], *arguments: object) -> Callable[[], R]:
    """``kernel`` bound to its arguments, so that a call does not look up their types (0.3 us less for 4)."""
    return partial(_overload(kernel, *map(_kind, arguments)), *arguments)


@cache
def _overload(kernel: Any, *kinds: object) -> Callable[..., Any]:
    """``kernel`` compiled for arguments of ``kinds``; numba takes 200 us to look that up."""
    signature = tuple(map(_numba_type, kinds))
    with uninterrupted():
        kernel.compile(signature)
    return cast(Callable[..., Any], kernel.get_overload(signature))


class _ArrayKind(NamedTuple):
    """The properties of an array by which numba selects a compiled kernel."""

    dtype: np.dtype[Any]
    ndim: int
    c_contiguous: bool
    f_contiguous: bool
    writeable: bool
    aligned: bool


def _kind(argument: object) -> object:
    """The kind of an array, the Python or numpy type of a number, numba's type of anything else."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        return _ArrayKind(
            argument.dtype, argument.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned
        )
    return type(argument) if isinstance(argument, int | float | np.generic) else _typeof(argument)


def _numba_type(kind: object) -> object:
    """The numba type of arguments of ``kind``."""
    if isinstance(kind, _ArrayKind):
        order = "C" if kind.c_contiguous else "F" if kind.f_contiguous else "A"
        return _array(_from_dtype(kind.dtype), kind.ndim, order, readonly=not kind.writeable, aligned=kind.aligned)
    return _typeof(kind()) if isinstance(kind, type) else kind


def address_of(kernel: Callable[..., object], *signature: object) -> int:
    """Address of the C function of ``kernel``, compiled for these types."""
    compiled: Any = kernel
    compiled.compile(signature)
    return _address_of(kernel, signature)


def sources(function: Callable[..., object]) -> int:
    """A checksum of the file of ``function`` and of every file that it imports, directly or not.

    Files outside the packages of the function and of this module are left out: only installations change them.
    """
    folders = tuple(
        filter(None, map(_folder_of, sorted({top.partition(".")[0] for top in (function.__module__, __name__)})))
    )
    queue, seen = [Path(function.__code__.co_filename)], set[Path]()
    while queue:
        path = queue.pop()
        if path not in seen:
            seen.add(path)
            queue += imported_files(path, folders)
    return crc32(repr(sorted(contents(path)[0] for path in seen)).encode())


def _folder_of(package: str) -> Path | None:
    """The folder of ``package``, which may still be importing; None for a plain module."""
    spec = getattr(sys.modules.get(package), "__spec__", None)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


@cache
def imported_files(path: Path, folders: tuple[Path, ...]) -> list[Path]:
    """The files within ``folders`` that ``path`` imports, except packages as a whole, which export no kernels."""
    files = []
    for module, names in contents(path)[1]:
        package, *parts = module.split(".")
        for folder in folders:
            if package == folder.name and parts:
                files += _files(folder.joinpath(*parts), names)
    return files


def _files(module: Path, names: str) -> list[Path]:
    """The file of a module, or those of a package and of the modules that ``names`` imports from it."""
    file = module.with_suffix(".py")
    if file.is_file():
        return [file]
    return [
        path
        for path in (module / "__init__.py", *(module / f"{name}.py" for name in _NAME.findall(names)))
        if path.is_file()
    ]


@cache
def contents(path: Path) -> tuple[int, list[tuple[str, str]]]:
    """Checksum of a file, and what it imports: (module, names from it)."""
    text = path.read_bytes()
    return crc32(text), _IMPORT.findall(text.decode())


def part(function: F) -> F:
    """As ``jit``, for functions called only by compiled code: no Python wrapper, so it compiles faster."""
    return cast(F, numba.njit(**_KERNEL, **_WITHIN)(function))


def bare_part(function: F) -> F:
    """As ``part``, for functions that neither create nor keep arrays."""
    return cast(F, numba.njit(**_BARE, **_WITHIN)(function))


def intrinsic(function: Callable[..., object]) -> Any:
    """numba's decorator for functions that emit LLVM instructions."""
    return numba.extending.intrinsic(function)


def pointer_to(dtype: Any) -> Any:
    """The numba type of a pointer to ``dtype``."""
    pointer: Any = types.CPointer
    return pointer(dtype)
