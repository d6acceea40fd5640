"""Claims: which IPUs of a system the programs of a user hold, whatever process they run in.

A file for each system, in a folder of the user's own. A process that has IPU i locks a byte of it that nobody writes:
byte i, or in a job of the launcher, which has a system of its own, byte job x 65,536 + i. The kernel takes the locks
of a process back when it ends, however that comes, so nothing can be left behind. Where no such file can be had, a
process has a system for itself.

These are locks on byte ranges, which the filelock package does not have: the kernel can be asked who holds which.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ipu_emu.hardware.system import System

__all__ = ["ALONE", "FOLDER_VARIABLE", "Claim", "Claims", "claims_folder"]

#: Folder of the files, for those who want Pods of their own.
FOLDER_VARIABLE = "IPU_EMU_CLAIMS"

#: struct flock of Linux on 64-bit machines: type, whence, start, length, pid.
_FLOCK = "@hhqqi"

#: In the place of the number of a job: no job.
ALONE = 0
_MOST_IPUS, _END, _ENDING = 1 << 16, 1 << 62, ".ipus"


@dataclass(frozen=True, order=True)
class Claim:
    """``ipus`` of the system of ``job`` that process ``pid`` has; 0 for a process that cannot be seen from here."""

    system: str
    job: int
    ipus: range
    pid: int


class Claims:
    """The locks of this process on one file; all Claims of a process on one file must be one object."""

    def __init__(self, path: Path | None, job: int = ALONE) -> None:
        self._file = _opened(path)
        self._first = job * _MOST_IPUS

    @classmethod
    def on(cls, system: System, folder: str, job: int = ALONE) -> Claims:
        """Those on a system, kept in a folder."""
        return cls(_own(folder) / f"{system.name.replace(' ', '')}{_ENDING}", job)

    @staticmethod
    def all_in(folder: str) -> list[Claim]:
        """What other processes have, of all systems; for a process that has nothing itself."""
        found = []
        for path in sorted(_own(folder).glob(f"*{_ENDING}")):
            file = _opened(path)
            for start, end, pid in () if file is None else _locks(file):
                job, first = divmod(start, _MOST_IPUS)
                found.append(Claim(path.stem, job, range(first, first + end - start), pid))
            if file is not None:
                os.close(file)
        return sorted(found, key=lambda claim: (claim.system, claim.job, claim.ipus.start))

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
        lock = _lock_in(self._file, self._first + ipu, self._first + ipu + 1)
        return None if lock is None else lock[2]

    def _lock(self, operation: int, ipu: int) -> bool:
        if self._file is not None:
            try:
                fcntl.lockf(self._file, operation, 1, self._first + ipu)
            except OSError:
                return False
        return True


def claims_folder(environ: Mapping[str, str]) -> str:
    """Where the environment says that claims are kept."""
    return environ.get(FOLDER_VARIABLE) or environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()


def _own(folder: str) -> Path:
    return Path(folder, f"ipu-emu-{os.getuid()}")


def _locks(file: int) -> Iterator[tuple[int, int, int]]:
    """All locks of others: first byte, end, process; neighbouring ones of a process count as one."""
    gaps = [(0, _END)]
    while gaps:
        start, end = gaps.pop()
        lock = _lock_in(file, start, end) if start < end else None
        if lock is not None:
            yield lock
            gaps += [(start, lock[0]), (lock[1], end)]


def _lock_in(file: int, start: int, end: int) -> tuple[int, int, int] | None:
    """A lock of somebody else between two places: first byte, end, process."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
    kind, _, first, length, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else (int(first), int(first + length), max(int(pid), 0))


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
