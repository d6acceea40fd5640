"""LLVM compiler: machine code from LLVM's intermediate representation, cached on disk so that it is compiled once.

numba needs about half a second for a kernel, most of it for type inference, which we do not need; compiling LLVM's
intermediate representation directly takes about ten milliseconds. A kernel is an object file named by the hash of
everything that it is made from: the function that writes its text, the arguments of that function, the files of this
folder, the processor and the version of LLVM. So a cached file is never stale, and its text need not be
generated again; a damaged file, or one of another kernel, fails its checksum and is replaced. Files that other users
can write are not loaded.
"""

from __future__ import annotations

import ctypes
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, wraps
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, ParamSpec

import llvmlite
import llvmlite.binding as llvm
from llvmlite.utils import get_library_name

from ipu_emu.errors import UnsupportedError
from ipu_emu.hardware.host_processor import NEEDED, check_host_processor
from popdist_py.files.atomic_write import replace_file
from popdist_py.files.trusted_files import UntrustedError, folder_fault, read_trusted

#: The partial sums of a sum that a kernel computes in lanes, on every processor.
LANES = 16
#: The variable that names the processor to compile for, as LLVM spells it; by default that of the host.
PROCESSOR = "IPU_EMU_PROCESSOR"

_AVX512 = (*NEEDED, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
#: Processors that can be named, and what the host must have to run code for them.
_PROCESSORS: Mapping[str, tuple[str, ...]] = {
    "x86-64-v3": NEEDED,
    "haswell": NEEDED,
    "znver3": (*NEEDED, "vaes", "vpclmulqdq"),
    "x86-64-v4": _AVX512,
    "skylake-avx512": _AVX512,
    "znver4": (*_AVX512, "avx512vbmi2", "avx512vnni", "avx512bf16", "gfni", "vaes", "vpclmulqdq"),
}

#: A kernel: takes one pointer to 64-bit arguments.
Function = Callable[[Any], None]

P = ParamSpec("P")

_MAGIC = b"IPUK1\n"
_MAPS = Path("/proc/self/maps")
#: Drop the pages of a mapping from this process (madvise(2)).
_DONTNEED = 4


@dataclass(frozen=True)
class _Machine:
    """The processor that kernels are compiled for."""

    target: Any
    name: str
    wide: bool

    @property
    def key(self) -> str:
        return f"{self.name} {llvmlite.__version__} {llvm.llvm_version_info}"


@cache
def _machine() -> _Machine:
    """The processor of this host, or the one that PROCESSOR names."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    cpu = os.environ.get(PROCESSOR, "")
    present = {name for name, has in features.items() if has}
    check_host_processor(present)
    if cpu:
        _check_named(cpu, present)
    text = "" if cpu else features.flatten()
    wide = "avx512f" in _PROCESSORS[cpu] if cpu else bool(features.get("avx512f"))
    # LLVM prefers 256-bit vectors on some processors where 512 bits are not slower for these kernels.
    text += ",-prefer-256-bit" if wide else ""
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu or llvm.get_host_cpu_name(), features=text.lstrip(","), opt=3, reloc="pic", codemodel="small"
    )
    return _Machine(target, f"{cpu or llvm.get_host_cpu_name()} {text}", wide)


def _check_named(name: str, features: Set[str]) -> None:
    """Refuse an unknown processor, and one whose code this host, which has ``features``, cannot run."""
    if name not in _PROCESSORS:
        raise UnsupportedError(
            f"{PROCESSOR}={name}: kernels are compiled for {', '.join(_PROCESSORS)}; name one of these"
        )
    missing = [needed for needed in _PROCESSORS[name] if needed not in features]
    if missing:
        raise UnsupportedError(
            f"kernels for {PROCESSOR}={name} need {', '.join(missing)}, which this processor does not have; name "
            f"another processor, or unset {PROCESSOR}"
        )


def vector_width() -> int:
    """float32 numbers in one vector register of this processor; changes the speed of a kernel, never its bits."""
    return 16 if _machine().wide else 8


def generated(write: Callable[P, str]) -> Callable[P, Function]:
    """Turn ``write`` into a function that returns the kernel of its name in the module whose text it writes.

    A kernel is compiled at most once in a process, and once on a machine. Its arguments are plain data.
    """

    @wraps(write)
    def linked(*args: P.args, **named: P.kwargs) -> Function:
        made_from = f"{_machine().key}\n{_sources()}\n{write.__name__}{args}{named}"
        key = sha256(made_from.encode()).hexdigest()[:32]
        return Library.shared().function(write.__name__, key, lambda: write(*args, **named))

    once: Any = cache(linked)  # grows only with the linked kernels, which the library keeps anyway
    remembered: Callable[P, Function] = once
    return remembered


@cache
def _sources() -> str:
    """A hash of the files that write kernels, computed once, as a process does not reload them."""
    return sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.rglob("*.py")))).hexdigest()


class Library:
    """All kernels of this process.

    It belongs to the process, not to a session: linked code depends only on its text, is never unlinked, and sessions
    with the same kernels share it.
    """

    def __init__(self) -> None:
        self.jit = llvm.create_lljit_compiler(_machine().target, use_jit_link=True)
        self.functions: dict[str, Function] = {}
        self.trackers: list[Any] = []
        self.linking = Lock()  # sessions may be made in several threads

    @staticmethod
    @cache
    def shared() -> Library:
        return Library()

    def function(self, name: str, key: str, text: Callable[[], str]) -> Function:
        with self.linking:
            if key not in self.functions:
                self.functions[key] = self.linked(name, key, text)
        return self.functions[key]

    def linked(self, name: str, key: str, text: Callable[[], str]) -> Function:
        code = _load(key)
        if code is None:
            code = _compile(text())
            _save(key, code)
        tracker = llvm.JITLibraryBuilder().add_object_img(code).export_symbol(name).link(self.jit, f"{name}.{key}")
        self.trackers.append(tracker)
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        return prototype(tracker[name])


def _compile(text: str) -> bytes:
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.verify()
    builder = llvm.create_pass_builder(machine.target, llvm.create_pipeline_tuning_options(speed_level=3))
    passes = llvm.create_new_module_pass_manager()
    # The kernels are already unrolled and vectorised: LLVM's own pipeline would produce equally fast code in ten
    # times the compile time.
    passes.add_instruction_combine_pass()
    passes.add_loop_rotate_pass()
    passes.add_new_gvn_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)
    return bytes(machine.target.emit_object(module))


def _load(key: str) -> bytes | None:
    folder = kernel_folder()
    if folder is None:
        return None
    try:
        data = read_trusted(folder / key, _MAGIC)
    except UntrustedError as error:
        warn_once(f"a compiled kernel is not used: {error}; it is compiled again")
        return None
    except OSError:
        return None
    head, code = data[: len(_MAGIC) + 4], data[len(_MAGIC) + 4 :]
    return code if head == _head(key, code) else None


def _save(key: str, code: bytes) -> None:
    """Write a kernel to the cache; where that is impossible it is compiled again next time."""
    folder: Path | None = kernel_folder()
    if folder is not None:
        with suppress(OSError):
            replace_file(folder / key, _head(key, code), code, mode=0o600, follow=False)


def _head(key: str, code: bytes) -> bytes:
    """The first bytes of a kernel's file, with a checksum of its name and code."""
    return _MAGIC + zlib.crc32(code, zlib.crc32(key.encode())).to_bytes(4, "little")


# The folder in which kernels are kept


KERNEL_CACHE = "IPU_EMU_KERNEL_CACHE"


def kernel_folder() -> Path | None:
    """The folder in which compiled kernels are kept between processes, or None where none can be written.

    IPU_EMU_KERNEL_CACHE      a folder, or the empty string for none
    XDG_CACHE_HOME            else poprun-py/kernels in it
    ~/.cache                  else poprun-py/kernels in it

    Without a folder, or with one in which other users may write, kernels are compiled in every process.
    """
    named = os.environ.get(KERNEL_CACHE)
    if named is not None:
        return writable(named) if named else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    has_none = home.startswith("~")  # a folder of this name would be made in the working folder
    return None if has_none else writable(os.path.join(home, "poprun-py", "kernels"))


@lru_cache(maxsize=16)  # asked once per kernel; the folder changes only with the environment
def writable(folder: str) -> Path | None:
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK | os.X_OK):
        return None
    fault = folder_fault(folder)
    if fault:
        warn_once(f"compiled kernels are not cached in {folder}: {fault}; set {KERNEL_CACHE} to a folder of your own")
        return None
    return Path(folder)


@lru_cache(maxsize=16)  # once per process for each folder or file
def warn_once(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def give_back_compiler() -> None:
    """Drop the pages of LLVM's code from this process after its kernels are linked, if the system supports that.

    Loading kernels touches 48 MiB of it and compiling some 67 MiB, none of which a step needs. The pages are clean
    and backed by a file, so the system reads them again, in about a millisecond, if another kernel is compiled.
    """
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
