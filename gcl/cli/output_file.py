"""Output file: writes a file of a command atomically."""

from __future__ import annotations

from pathlib import Path

from gcl.errors import ArgumentError
from popdist_py.files.atomic_write import replace_file, write_fault


def check_writable(path: Path | None, option: str) -> None:
    """Raise ArgumentError naming ``option`` if it is clear beforehand that ``path`` cannot be written."""
    if path is None:
        return
    if not path.name:
        raise ArgumentError(f"{option} '' is not valid; write the name of a file")
    if fault := write_fault(path):
        raise ArgumentError(f"{option} {path} cannot be written: {fault}")


def write_text(path: Path, text: str, option: str) -> None:
    """Write ``text`` to ``path``; raise ArgumentError naming ``option`` if that fails."""
    check_writable(path, option)
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise ArgumentError(f"{option} {path} cannot be written: {error.strerror}") from None
