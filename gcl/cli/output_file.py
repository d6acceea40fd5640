"""output_file: a file that a command writes, all or nothing."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gcl.errors import ArgumentError

__all__ = ["check_writable", "write_text"]


def check_writable(path: Path | None, option: str) -> None:
    """Raise ArgumentError naming ``option`` where ``path`` can be seen to be no file that may be written."""
    if path is None:
        return
    if not path.name:
        raise ArgumentError(f"{option} '' was given; write the name of a file")
    try:
        fault = _fault(path)
    except OSError as error:
        fault = str(error.strerror)
    if fault:
        raise ArgumentError(f"{option} {path} cannot be written: {fault}")


def write_text(path: Path, text: str, option: str) -> None:
    """Write ``text`` to ``path``; raise ArgumentError naming ``option`` if that cannot be."""
    check_writable(path, option)
    try:
        if _special(path):
            path.write_text(text)
        else:
            _replace(path, text)
    except OSError as error:
        raise ArgumentError(f"{option} {path} cannot be written: {error.strerror}") from None


def _fault(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}; make it first"
    if path.is_dir():
        return "it is a folder; write the name of a file"
    if _special(path):
        return "" if os.access(path, os.W_OK) else "permission denied; choose another place"
    with tempfile.TemporaryFile(dir=path.parent):
        return ""


def _replace(path: Path, text: str) -> None:
    """Write beside ``path`` first; nothing is left there whatever happens."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name[:40]}.", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise


def _special(path: Path) -> bool:
    """Whether ``path`` is a device, a pipe or a link (as /dev/stdout), which is written to and not replaced."""
    return path.exists() and (path.is_symlink() or not path.is_file())
