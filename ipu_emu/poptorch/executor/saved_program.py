"""Saved program: the file that ``save`` writes, with the trace, the options and perhaps the module and optimiser.

8 bytes: name and version    8 bytes: length of the file    SHA-256 of the pickle    a pickle

A file of another length is rejected, so that reading never takes more memory than writing did.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ipu_emu.poptorch.errors import Error, refusal
from popdist_py.files.atomic_write import replace_file
from popdist_py.files.trusted_files import UntrustedError, folder_fault, read_trusted

_VERSION = "3.4.0"
_FILE = "model.poptorch"
_MAGIC = b"POPTRCH1"
_CHECKSUM = len(_MAGIC) + 8
_START = _CHECKSUM + sha256().digest_size


def write_program(filename: str, content: Mapping[str, Any]) -> None:
    """Write ``content`` atomically, for a folder to a file in it, to which nobody else may write."""
    path = os.path.join(filename, _FILE) if os.path.isdir(filename) else filename
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    body = pickle.dumps({"version": _VERSION} | dict(content))
    replace_file(path, _magic(_START + len(body)) + sha256(body).digest() + body, mode=0o644)


def read_program(filename: str) -> dict[str, Any]:
    """Return the content of a file, which may be any Python object: one that others can write is refused."""
    path = os.path.join(filename, _FILE) if os.path.isdir(filename) else filename
    try:
        file = os.path.realpath(path, strict=True)
        fault = folder_fault(os.path.dirname(os.path.abspath(path))) or folder_fault(os.path.dirname(file))
        if fault:
            raise UntrustedError(f"{fault}; if you trust it, copy it to a private folder")
        data = memoryview(read_trusted(file, _magic(os.stat(file).st_size)))
        if sha256(data[_START:]).digest() != data[_CHECKSUM:_START]:
            raise refusal("it is damaged, or not a PopTorch file")
        content = pickle.loads(data[_START:])
        if not isinstance(content, dict) or "trace" not in content:
            raise refusal("it has no program")
    except (OSError, ImportError, AttributeError, TypeError, Error, ValueError, pickle.UnpicklingError) as error:
        why = getattr(error, "strerror", None) or error
        raise Error(f"Invalid file {path}: {why}") from None
    if content["version"] != _VERSION:
        raise AssertionError(
            f"Invalid file {filename}: PopTorch version mismatch: file {content['version']}, this is {_VERSION}"
        )
    return content


def _magic(length: int) -> bytes:
    """The first bytes of a file of ``length`` bytes."""
    return _MAGIC + length.to_bytes(8, "little")
