"""Inspection: the report of a compiled program as text."""

from __future__ import annotations

from pathlib import Path

from ipu_emu.program.executable import Executable
from popdist_py.files.atomic_write import replace_file

__all__ = ["write_report"]


def write_report(executable: Executable, folder: str, name: str) -> None:
    """Write the program and its memory plan as text."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    replace_file(path / f"{name}.txt", str(executable).encode())
