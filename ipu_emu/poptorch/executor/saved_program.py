"""Saved program: the file that ``save`` writes, with the trace, the options and perhaps the module and optimiser."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any

from ipu_emu.poptorch.errors import Error, refusal
from popdist_py.atomic_write import replace_file
from popdist_py.trusted_files import UntrustedError, folder_fault, read_trusted

__all__ = ["read_program", "write_program"]

_VERSION = "3.4.0"
_FILE = "model.poptorch"
#: The first byte of a pickle.
_MAGIC = b"\x80"


def write_program(filename: str, content: Mapping[str, Any]) -> None:
    """Write ``content``, whole or not at all; a folder means a file in it."""
    path = os.path.join(filename, _FILE) if os.path.isdir(filename) else filename
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    replace_file(path, pickle.dumps({"version": _VERSION} | dict(content)))


def read_program(filename: str) -> dict[str, Any]:
    """The content of a file, which may hold any Python object: one that other users may have written is refused."""
    path = os.path.join(filename, _FILE) if os.path.isdir(filename) else filename
    try:
        file = os.path.realpath(path, strict=True)
        fault = folder_fault(os.path.dirname(os.path.abspath(path))) or folder_fault(os.path.dirname(file))
        if fault:
            raise UntrustedError(f"{fault}; if you trust it, copy it to a private folder")
        content = pickle.loads(read_trusted(file, _MAGIC))
        if not isinstance(content, dict) or "trace" not in content:
            raise refusal("it has no program")
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, Error, ValueError, KeyError) as error:
        why = getattr(error, "strerror", None) or error
        raise Error(f"Invalid file {filename}: {why}") from None
    if content["version"] != _VERSION:
        raise AssertionError(
            f"Invalid file {filename}: PopTorch version mismatch: file {content['version']}, this is {_VERSION}"
        )
    return content
