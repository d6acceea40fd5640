"""ProfileFile: where the profiles of a program are written: next to its executable or, without one, to the trace.

The trace lists the profiles next to executables that belong to its run, with checksums, as a later run may replace
them. The folder of executables of a launched job may be deleted at its end, so a profile there has a copy next to the
trace.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from popdist_py import trace
from popdist_py.environment import EXECUTABLE_CACHE_PATH
from popdist_py.files.atomic_write import replace_file
from popdist_py.files.bounded_read import read_file

__all__ = ["ProfileFile"]


class ProfileFile:
    """The file of a program's profile of one ``phase``; it moves when the executable gets a file."""

    def __init__(self, phase: str = "") -> None:
        self._suffix = f"{phase and '.' + phase.replace(' ', '-')}{trace.PROFILE_SUFFIX}"
        self._written: Path | None = None

    def is_beside(self, executable: Path | None) -> bool:
        """Whether the profile is next to the file of the executable."""
        wanted = self._beside(executable)
        return self._written is not None and self._written.is_file() and wanted in (None, self._written)

    def write(self, profile: Mapping[str, Any], executable: Path | None) -> None:
        """Write the profile, and remove an earlier one next to the trace; do nothing without a trace."""
        recorder = trace.recorder()
        if recorder is None:
            return
        data = json.dumps(profile).encode()
        wanted, own = self._beside(executable), Path(recorder.path.removesuffix(trace.SUFFIX))
        fault = None if wanted is None else _fault(wanted, data)
        path = wanted
        if path is None or fault or _is_of_the_job(path):
            beside_trace = Path(f"{own}.{recorder.serial('profile')}{self._suffix}")
            failed = _fault(beside_trace, data)
            if path is None or fault:
                path, fault = beside_trace, failed
        if fault:
            trace.instant("the profile of the program cannot be written", why=fault)
            return
        if path == wanted:
            recorder.define({trace.PROFILE: {"path": str(path), "sha256": sha256(data).hexdigest()}})
            if self._written is not None and self._written.parent == own.parent:
                with suppress(OSError):
                    self._written.unlink()
        self._written = path

    def _beside(self, executable: Path | None) -> Path | None:
        if executable is None or not executable.is_file():
            return None
        return Path(f"{os.path.abspath(executable)}{self._suffix}")


def _is_of_the_job(path: Path) -> bool:
    """Whether a file is in the folder of executables that the launcher names."""
    folder = os.environ.get(EXECUTABLE_CACHE_PATH)
    return bool(folder) and path.parent == Path(os.path.abspath(folder or "."))


def _fault(path: Path, data: bytes) -> str:
    """Write a file, unless it has these bytes; return why that failed, or ""."""
    with suppress(OSError):
        if read_file(path, len(data)) == data:
            return ""
    try:
        replace_file(path, data, mode=0o600, follow=False)
    except OSError as error:
        return str(error.strerror)
    return ""
