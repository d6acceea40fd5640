"""Numba internals: all undocumented names of numba in use, and the versions that have them.

Checked in numba 0.61.0, 0.65.0 and 0.68.1. With a version that lacks one of them, declaring a kernel raises
ImportError with the name, before anything is compiled. No other file may use a name of numba that begins with an
underscore, or a module within ``numba.core``.

    purpose                                                    name
    a stamp that tells a stale kernel from a fresh one         Dispatcher._cache._cache_file._source_stamp
    a lock around loading and saving a kernel                  Cache._load_overload, load_overload, save_overload
    the path of that lock                                      IndexDataCacheFile._index_path
    files that are checked before they are loaded              _load_index, _load_data, _data_path, _dump of the same
    a runtime that starts without importing the compiler       numba.core.runtime.nrt.rtsys.initialize
    kernels without reference counts                           numba.core.cpu.CPUTargetOptions._nrt
    an LLVM loop                                               numba.core.cgutils.for_range
    the address of a compiled function                         CompileResult.library, fndesc.llvm_cfunc_wrapper_name
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numba

from popdist_py.files.bounded_read import read_file

VERSIONS = "0.61 to 0.68"

#: The first bytes of an index file, which the checksum leaves out; and the length of a checksum.
_VERSION = pickle.dumps(numba.__version__, protocol=-1)
_DIGEST = 32


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
        self._write: Callable[[object], bytes] = internal(self._index, "_dump")
        self._read_index: Callable[[], dict[Any, str]] = internal(self._index, "_load_index")
        self._read_data: Callable[[str], Any] = internal(self._index, "_load_data")
        self._path_of: Callable[[str], str] = internal(self._index, "_data_path")

    def add_stamp(self, stamp: object) -> None:
        """Make numba discard kernels saved under another ``stamp``, in addition to the stamp of the source file."""
        self._index._source_stamp = internal(self._index, "_source_stamp"), stamp

    def replace(self, load: Callable[[object, Any], Any], save: Callable[..., None]) -> None:
        """Make numba call these functions in place of ``load`` and ``save``."""
        internal(self._cache, "load_overload")
        self._cache.load_overload, self._cache.save_overload = load, save

    def check_files(self, fault: Callable[[str], str]) -> None:
        """Add a checksum to each file; load no file that is damaged, or for which ``fault`` returns a message."""
        self._index._dump = lambda content: _sealed(self._write(content))
        self._index._load_index = lambda: self._checked_index(fault)
        self._index._load_data = lambda name: self._checked_data(name, fault)

    def _checked_index(self, fault: Callable[[str], str]) -> dict[Any, str]:
        with suppress(OSError):
            if not fault(str(self.index)) and _is_sealed(read_file(self.index).removeprefix(_VERSION)):
                return self._read_index()
        return {}

    def _checked_data(self, name: str, fault: Callable[[str], str]) -> Any:
        path = self._path_of(name)
        if fault(path) or not _is_sealed(read_file(path)):
            raise OSError(f"{path} must not be loaded")  # numba compiles the kernel then
        return self._read_data(name)


def _sealed(content: bytes) -> bytes:
    return content + sha256(content).digest()


def _is_sealed(content: bytes) -> bool:
    return sha256(content[:-_DIGEST]).digest() == content[-_DIGEST:]
