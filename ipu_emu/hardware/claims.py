"""Claims: which IPUs of a system the programs of a user hold, whatever process they run in.

A file for each system, in a folder of the user's own; byte i of it is locked by the process that has IPU i. The
kernel takes the locks of a process back when it ends, however that comes, so nothing can be left behind. Where no
such file can be had, a process has a system for itself.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ipu_emu.hardware.system import System

__all__ = ["FOLDER_VARIABLE", "Claims", "claims_folder"]

#: Folder of the files, for those who want Pods of their own.
FOLDER_VARIABLE = "IPU_EMU_CLAIMS"

#: struct flock of Linux on 64-bit machines: type, whence, start, length, pid.
_FLOCK = "@hhqqi"


class Claims:
    """The locks of this process on one file; all Claims of a process on one file must be one object."""

    def __init__(self, path: Path | None) -> None:
        self._file = _opened(path)

    @classmethod
    def on(cls, system: System, folder: str) -> Claims:
        """Those on a system, kept in a folder."""
        return cls(Path(folder, f"ipu-emu-{os.getuid()}", f"{system.name.replace(' ', '')}.ipus"))

    def take(self, ipus: Iterable[int]) -> bool:
        """Lock all of ``ipus``, or none."""
        taken: list[int] = []
        for ipu in ipus:
            if not self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, ipu):
                self.release(taken)
                return False
            taken.append(ipu)
        return True

    def release(self, ipus: Iterable[int]) -> None:
        """Unlock ``ipus``."""
        for ipu in ipus:
            self._lock(fcntl.LOCK_UN, ipu)

    def holder(self, ipu: int) -> int | None:
        """The process that has an IPU, if another than this one has; 0 for one that cannot be seen from here."""
        if self._file is None:
            return None
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, ipu, 1, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else max(int(pid), 0)

    def _lock(self, operation: int, ipu: int) -> bool:
        if self._file is not None:
            try:
                fcntl.lockf(self._file, operation, 1, ipu)
            except OSError:
                return False
        return True


def claims_folder(environ: Mapping[str, str]) -> str:
    """Where the environment says that claims are kept."""
    return environ.get(FOLDER_VARIABLE) or environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()


def _opened(path: Path | None) -> int | None:
    """The file, in a folder that belongs to nobody else; None where that cannot be."""
    if path is None:
        return None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.parent.lstat()
        if not stat.S_ISDIR(owner.st_mode) or owner.st_uid != os.getuid():
            return None
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
