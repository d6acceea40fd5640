"""IPU locks: which IPUs of a system the processes of a user hold.

Each system has a file, in a folder of the user. A process that has IPU i locks one byte of the file, which
is never written: byte i, or byte job x 65,536 + i in a job of the launcher, which has its own system. The kernel
releases the locks of a process when it ends, however it ends. If the file cannot be created, processes do not see
which IPUs others hold.

The filelock package has no locks on byte ranges, whose holders the kernel reports.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ipu_emu.hardware.system import System
from popdist_py.messages.user_warning import warn_user

#: Environment variable: the folder of the files.
FOLDER_VARIABLE = "IPU_EMU_CLAIMS"

#: struct flock of Linux on 64-bit machines: type, whence, start, length, pid.
_FLOCK = "@hhqqi"

#: The job number of programs without a job.
ALONE = 0
_MOST_IPUS, _END, _ENDING = 1 << 16, 1 << 62, ".ipus"


@dataclass(frozen=True, order=True)
class Claim:
    """IPUs of the system of ``job`` that process ``pid`` holds; pid 0 for a process in another pid namespace."""

    system: str
    job: int
    ipus: range
    pid: int


class Claims:
    """The locks of this process on one file; a process must not have two Claims objects for one file."""

    def __init__(self, path: Path | None, job: int = ALONE) -> None:
        self._file = _opened(path)
        self._first = job * _MOST_IPUS

    @classmethod
    def on(cls, system: System, folder: str, job: int = ALONE) -> Claims:
        """Return the claims on a system, with files in ``folder``."""
        return cls(_own(folder) / f"{system.name.replace(' ', '')}{_ENDING}", job)

    @staticmethod
    def all_in(folder: str) -> list[Claim]:
        """Return the claims of other processes on all systems; this process must not have claims."""
        claims: list[Claim] = []
        own = _own(folder)
        if os.path.lexists(own) and not _is_own(own):
            return claims
        for path in sorted(own.glob(f"*{_ENDING}")):
            file = _opened(path)
            for start, end, pid in () if file is None else _locks(file):
                job, first = divmod(start, _MOST_IPUS)
                claims.append(Claim(path.stem, job, range(first, first + end - start), pid))
            if file is not None:
                os.close(file)
        return sorted(claims, key=lambda claim: (claim.system, claim.job, claim.ipus.start))

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
        """Return the pid of another process that has an IPU (0: in another pid namespace); None if there is none."""
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
    """Return the folder of the lock files, from the environment or the default of this user."""
    return environ.get(FOLDER_VARIABLE) or environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()


def _own(folder: str) -> Path:
    return Path(folder, f"ipu-emu-{os.getuid()}")


def _locks(file: int) -> Iterator[tuple[int, int, int]]:
    """Yield all locks of other processes: first byte, end, pid; adjacent locks of a process are merged."""
    gaps = [(0, _END)]
    while gaps:
        start, end = gaps.pop()
        lock = _lock_in(file, start, end) if start < end else None
        if lock is not None:
            yield lock
            gaps += [(start, lock[0]), (lock[1], end)]


def _lock_in(file: int, start: int, end: int) -> tuple[int, int, int] | None:
    """Return a lock of another process within a byte range: first byte, end, pid."""
    request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0)
    kind, _, first, length, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, request))
    return None if kind == fcntl.F_UNLCK else (int(first), int(first + length), max(int(pid), 0))


def _opened(path: Path | None) -> int | None:
    """Open the file, in a folder that belongs to this user; None if that is impossible."""
    if path is None:
        return None
    try:
        if not _is_own(path.parent):
            return None
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        _warn(path.parent, f"cannot be used: {error.strerror}")
        return None


def _is_own(folder: Path) -> bool:
    """Whether ``folder``, created if need be, belongs to this user; warns if it does not."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
        return True
    _warn(folder, f"is not a folder of this user ({os.getuid()})")
    return False


@cache  # once in a process
def _warn(folder: Path, why: str) -> None:
    warn_user(
        f"Programs do not see which IPUs others use, as {folder} {why}; have it removed, or name another folder in "
        f"{FOLDER_VARIABLE}"
    )
