"""Numba internals: all undocumented names of numba in use, and the versions that have them.

Checked in numba 0.61.0, 0.65.0 and 0.68.1. With a version that lacks one of them, declaring a kernel raises
ImportError with the name, before anything is compiled. No other file may use a name of numba that begins with an
underscore, or a module within ``numba.core``.

    purpose                                                    name
    a stamp that tells a stale kernel from a fresh one         Dispatcher._cache._cache_file._source_stamp
    a lock around loading and saving a kernel                  Cache._load_overload, load_overload, save_overload
    the path of that lock                                      IndexDataCacheFile._index_path
    a runtime that starts without importing the compiler       numba.core.runtime.nrt.rtsys.initialize
    kernels without reference counts                           numba.core.cpu.CPUTargetOptions._nrt
    an LLVM loop                                               numba.core.cgutils.for_range
    the address of a compiled function                         CompileResult.library, fndesc.llvm_cfunc_wrapper_name
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numba

__all__ = ["WITHOUT_REFERENCE_COUNTS", "KernelCache", "address_of", "for_range", "initialise_runtime"]

VERSIONS = "0.61 to 0.68"


def internal(owner: Any, name: str) -> Any:
    """Attribute ``name`` of ``owner``, an object or a module's name; raise ImportError if there is none."""
    try:
        return getattr(import_module(owner) if isinstance(owner, str) else owner, name)
    except (ImportError, AttributeError):
        where = owner if isinstance(owner, str) else type(owner).__name__
        raise ImportError(
            f"numba {numba.__version__} has no {where}.{name}, which gcl's kernels need; install numba {VERSIONS}"
        ) from None


for_range: Any = internal("numba.core.cgutils", "for_range")
_runtime: Any = internal("numba.core.runtime.nrt", "rtsys")

#: Options of a kernel that neither creates nor returns arrays.
WITHOUT_REFERENCE_COUNTS: dict[str, Any] = {"_nrt": False}
internal(internal("numba.core.cpu", "CPUTargetOptions"), "_nrt")


def initialise_runtime(context: Any) -> None:
    """Start the runtime of loaded kernels, without the parts of numba that only compiling needs."""
    internal(_runtime, "initialize")(context)


def address_of(kernel: Any, signature: tuple[object, ...]) -> int:
    """Address of the C function of ``kernel``, compiled for ``signature``."""
    compiled = kernel.overloads[signature]
    name = internal(internal(compiled, "fndesc"), "llvm_cfunc_wrapper_name")
    return int(internal(compiled, "library").get_pointer_to_function(name))


class KernelCache:
    """The cache on disk of ``kernel``, a function compiled with ``cache=True``."""

    def __init__(self, kernel: Any) -> None:
        self._cache = internal(kernel, "_cache")
        self._index = internal(self._cache, "_cache_file")
        self.load: Callable[[object, Any], Any] = internal(self._cache, "_load_overload")
        self.save: Callable[..., None] = internal(self._cache, "save_overload")
        self.index = Path(internal(self._index, "_index_path"))

    def add_stamp(self, stamp: object) -> None:
        """Make numba discard kernels saved under another ``stamp``, in addition to the stamp of the source file."""
        self._index._source_stamp = internal(self._index, "_source_stamp"), stamp

    def replace(self, load: Callable[[object, Any], Any], save: Callable[..., None]) -> None:
        """Make numba call these functions in place of ``load`` and ``save``."""
        internal(self._cache, "load_overload")
        self._cache.load_overload, self._cache.save_overload = load, save
