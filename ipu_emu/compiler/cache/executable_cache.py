"""Executable cache: compiled executables in a folder, each under a key.

The name of a file is its key: a hash of all inputs of the compiler (the graph without the values of its variables,
the relevant options) and of the compiler itself. The values of variables are not saved: the process
that loads an executable has them. If several instances share a folder, the first one compiles and the others wait for
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from gcl.kernels.file_lock import held
from ipu_emu.compiler.cache.executable_codec import Encoder
from ipu_emu.compiler.cache.packed_value import pack, unpack
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph
from ipu_emu.ops.codegen.llvm_compiler import vector_width
from ipu_emu.program.executable import Executable
from popdist_py import trace
from popdist_py.files.atomic_write import replace_file
from popdist_py.files.trusted_files import UntrustedError, folder_fault, read_trusted
from popdist_py.messages.user_warning import warn_user

#: Seconds to wait for another process that compiles the same model; then this one does it too.
PATIENCE = 300.0

_ROOT = Path(__file__).parents[2]
_COMPILER = ("graph", "ops", "compiler", "program", "hardware")


def without_variables(graph: Graph) -> Graph:
    """Return a copy of ``graph`` without the values of its variables."""
    copy = graph.copy()
    copy.data = {
        id: v for id, v in graph.data.items() if id in graph.tensors and not graph.tensors[id].role.is_variable
    }
    return copy


def cache_key(graph: Graph, *options: Any) -> str:
    """Return the hash of all inputs of the compiler; ``options`` are dataclasses, enums and plain values."""
    encoder = Encoder()
    packed = msgpack.packb([encoder.encode(without_variables(graph)), encoder.encode(options)])
    digest = sha256(packed + compiler_hash())
    for blob in encoder.blobs:
        digest.update(blob.tobytes())
    return digest.hexdigest()


@cache
def compiler_hash() -> bytes:
    """Return a hash of the sources of the compiler and of the vector width, which scratch sizes depend on.

    Computed once per process, which does not reload its sources.
    """
    digest = sha256(str(vector_width()).encode())
    for room in _COMPILER:
        for path in sorted((_ROOT / room).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.digest()


@trace.span("save the executable", trace.Category.COMPILATION)
def save_executable(
    executable: Executable,
    path: str | os.PathLike[str],
    key: str = "",
    variables: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Write ``executable`` with these values of its variables; raise EmulatorError if that fails.

    Whatever the umask, nobody else may write to the file: it would not be loaded.
    """
    graph = without_variables(executable.graph)
    graph.data |= variables or {}
    data = to_bytes(replace(executable, graph=graph), key)
    try:
        replace_file(path, data, mode=0o644)
    except OSError as error:
        raise EmulatorError(
            f"Cannot write the executable '{os.fspath(path)}': {error.strerror}; choose a path that is writable"
        ) from error


@trace.span("load the executable", trace.Category.COMPILATION)
def load_executable(path: str | os.PathLike[str], key: str | None = None) -> Executable:
    """Read an executable; raise EmulatorError if there is none, or if its key is not ``key``.

    An executable determines the addresses to which ops write, so a file that other users can write is refused.
    """
    try:
        file = os.path.realpath(path, strict=True)
        fault = folder_fault(Path(path).parent) or folder_fault(Path(file).parent)
        if fault:
            raise UntrustedError(fault)
        data = read_trusted(file, _MAGIC)
    except UntrustedError as error:
        raise EmulatorError(
            f"The executable '{os.fspath(path)}' is not loaded: {error}; if you trust it, copy it to a private folder"
        ) from None
    except OSError as error:
        raise EmulatorError(f"Cannot read the executable '{os.fspath(path)}': {error.strerror}") from error
    try:
        return from_bytes(data, key)
    except EmulatorError as error:
        raise EmulatorError(
            f"Cannot use the executable '{os.fspath(path)}': {error}; compile the model again"
        ) from None


def cached_file(folder: str | os.PathLike[str], key: str) -> Path:
    """The file of the executable of ``key``, if it could be saved."""
    return Path(folder) / f"{key[:40]}.ipuexe"


def compiled_once(
    folder: str | os.PathLike[str], graph: Graph, key: str, make: Callable[[], Executable]
) -> Executable:
    """Return the executable of ``key`` from ``folder``, or call ``make`` and save its result there.

    ``graph`` has the values of the variables. An unusable file is replaced, with a warning. If the folder is not
    writable, or other users may write to it, the executable is neither loaded nor saved, with a warning.
    """
    path = cached_file(folder, key)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fault = folder_fault(folder)
    except OSError as error:
        fault = str(error.strerror)
    if fault:
        warn_user(f"Cannot save executables in '{folder}': {fault}")
        return make()
    executable, _ = _usable(path, key)
    if executable is None:
        with held(Path(f"{path}.lock"), PATIENCE):
            executable, why = _usable(path, key)
            if why:
                warn_user(f"{why}. It is replaced")
            if executable is None:
                return _made(path, key, make)
    return with_variables(executable, graph.data)


def _usable(path: Path, key: str) -> tuple[Executable | None, str]:
    """Return the executable, or None and the reason why an existing file cannot be used."""
    if not path.exists():
        return None, ""
    try:
        return load_executable(path, key), ""
    except EmulatorError as error:
        return None, str(error)


def _made(path: Path, key: str, make: Callable[[], Executable]) -> Executable:
    executable = make()
    try:
        save_executable(executable, path, key)
    except EmulatorError as error:
        warn_user(str(error))
    return executable


def with_variables(executable: Executable, values: Mapping[str, NDArray[Any]]) -> Executable:
    """Return ``executable`` with these values of its variables."""
    loaded = executable.graph
    variables = {tensor.id for tensor in loaded.tensors.values() if tensor.role.is_variable}
    own = {id: np.array(value) for id, value in loaded.data.items()}
    changed = {id: value for id, value in values.items() if id in variables}
    return replace(executable, graph=replace(loaded, data=own | changed))


#: The first bytes of a file.
_MAGIC = b"IPUEMU\x00\x02"


def to_bytes(executable: Executable, key: str) -> bytes:
    """Return ``executable`` as the content of a file."""
    return pack(_MAGIC, executable, key)


def from_bytes(data: bytes, key: str | None = None) -> Executable:
    """Reverse ``to_bytes``; raise EmulatorError for bytes that are damaged, or of another key."""
    value = unpack(_MAGIC, data, "an executable", key)
    if not isinstance(value, Executable):
        raise EmulatorError("it does not hold an executable")
    return value
