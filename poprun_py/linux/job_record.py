"""Job record: the file in which a job lists what must be removed from this host after it; nothing else is removed.

    TMP/poprun-py.UID/             of this user alone
    +-- ID.files                   the record: a line "DEVICE INODE PATH" for each file that the job's MPI has made,
                                   with a slash at its end if it is a folder to be removed only if it is empty
    +-- ID/                        the job's own folder
    /dev/shm/poprun-py.UID/ID/     the job's own folder for shared memory

Each process of the job on this host, the launcher and the supervisors, holds a shared lock (flock) on the record. A
lock is seen from all containers that share the folder, whichever processes they see. A record without a lock belongs
to a job of which nothing is left: the last process of the job removes what it lists, else the next launch does.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator

SHARED_MEMORY = "/dev/shm"

_SUFFIX = ".files"
_ID = r"[0-9a-f]{16}"
_LINE = rb"(\d+) (\d+) (/[^\n]*)"

#: The most bytes of a record, far more than any job lists.
_MOST_BYTES = 1 << 20

#: The last job to end removes the folder of the user, perhaps while another is creating a file in it.
_ATTEMPTS = 100


def temporary_folders() -> list[str]:
    """Return where temporary files may lie, best first, in Python's order; none is tried by creating a file in it."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    return list(dict.fromkeys(os.path.abspath(path) for path in (*named, "/tmp", "/var/tmp") if path))


def new_folder(temporary: str) -> str:
    """Return the path of a new job's own folder below ``temporary``; nothing is created."""
    return os.path.join(_base(temporary), os.urandom(8).hex())


def remove_abandoned(temporary: str) -> list[str]:
    """Remove the files of jobs without a living process; return the paths."""
    base = _base(temporary)
    removed: list[str] = []
    for name in _names(base) if is_private(base) else ():
        if name.endswith(_SUFFIX) and re.fullmatch(_ID, name.removesuffix(_SUFFIX)):
            removed += _remove_if_abandoned(os.path.join(base, name.removesuffix(_SUFFIX)))
    return removed


def _names(folder: str) -> list[str]:
    """Names in ``folder``; none if the last job to end has just removed it."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


class JobRecord:
    """The record of the job whose own folder is ``folder``, created if need be; locked until ``close``.

    Raises OSError if it cannot be created, or if ``folder`` is in a folder that others may write to.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.path = folder, folder + _SUFFIX
        self.shared_folder = _shared(folder)
        self._descriptor = _locked(folder)
        self._listed: set[str] = set()
        self._end_of_line = b""

    def make_folder(self) -> str:
        """Create the job's own folder; return its path."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        return self.folder

    def make_shared_folder(self) -> str:
        """Create the job's own folder for shared memory; return its path, or an empty one if that is not possible."""
        try:
            _make_private(os.path.dirname(self.shared_folder))
            os.makedirs(self.shared_folder, mode=0o700, exist_ok=True)
        except OSError:
            return ""
        return self.shared_folder

    def add(self, paths: Iterable[str]) -> str:
        """List files or folders that this user owns; return why one could not be listed, '' if all are."""
        fault = ""
        for path in paths:
            if path in self._listed or not (status := _own(path.rstrip("/"))):
                continue
            self._listed.add(path)
            line = f"{status.st_dev} {status.st_ino} {path}\n".encode(errors="surrogateescape")
            try:
                complete = os.write(self._descriptor, self._end_of_line + line) == len(self._end_of_line + line)
                fault = fault if complete else os.strerror(errno.ENOSPC)
            except OSError as error:
                complete, fault = False, error.strerror or str(error)
            self._end_of_line = b"" if complete else b"\n"  # after a part of a line
        return fault

    def remove_listed(self) -> list[str]:
        """Remove the listed files, which no process of the job may use any more; return the paths."""
        return list(_remove_listed(self._descriptor))

    def fileno(self) -> int:
        return self._descriptor

    def close(self, *, spared: Collection[str] = ()) -> list[str]:
        """Release the lock; the last process of the job on this host removes all but ``spared``; return the paths."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _remove_all(self.folder, self._descriptor, spared)
        except OSError:  # other processes of the job hold it
            return []
        finally:
            os.close(self._descriptor)


def _base(temporary: str) -> str:
    return os.path.join(temporary, f"poprun-py.{os.getuid()}")


def _shared(folder: str) -> str:
    return os.path.join(_base(SHARED_MEMORY), os.path.basename(folder))


def _locked(folder: str) -> int:
    """Open and lock the record of ``folder``; a record that was removed meanwhile is made again."""
    path = folder + _SUFFIX
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(_ATTEMPTS):
        _make_private(os.path.dirname(folder))
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if _is_at(path, descriptor):
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise FileNotFoundError(2, "it is removed again and again", path)


def _make_private(folder: str) -> None:
    for _ in range(_ATTEMPTS):
        try:
            os.mkdir(folder, mode=0o700)
            return
        except FileExistsError:
            if is_private(folder):
                return
            if os.path.lexists(folder):  # else the last job to end has just removed it
                raise PermissionError(1, "it belongs to somebody else, or others may write to it", folder) from None
    raise FileNotFoundError(2, "it is removed again and again", folder)


def is_private(folder: str) -> bool:
    """Whether a folder, not a link to one, is this user's alone: nobody else can have put links into it."""
    status = _own(folder)
    return status is not None and stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022


def _own(path: str) -> os.stat_result | None:
    """The status of a file or folder of this user, not of a link; None for anything else."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return status if kind and status.st_uid == os.getuid() else None


def _is_at(path: str, descriptor: int) -> bool:
    """Whether the open file, which must be this user's, is still at ``path``."""
    status = _own(path)
    return status is not None and os.path.samestat(status, os.fstat(descriptor))


def _remove_if_abandoned(folder: str) -> list[str]:
    try:
        descriptor = os.open(folder + _SUFFIX, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _remove_all(folder, descriptor) if _is_at(folder + _SUFFIX, descriptor) else []
    except OSError:
        return []
    finally:
        os.close(descriptor)


def _remove_all(folder: str, descriptor: int, spared: Collection[str] = ()) -> list[str]:
    """Remove what the record lists, the job's own folders and the record, whose lock is held."""
    removed = list(_remove_listed(descriptor, spared))
    for directory in (_shared(folder), folder):
        if _own(directory) and is_private(os.path.dirname(directory)):
            _remove(directory)
            removed.append(directory)
    os.unlink(folder + _SUFFIX)
    for base in (os.path.dirname(_shared(folder)), os.path.dirname(folder)):
        try:
            os.rmdir(base)
        except OSError:  # other jobs are there
            continue
    return removed


def _remove_listed(descriptor: int, spared: Collection[str] = ()) -> Iterator[str]:
    """Remove what the record lists and is still the same file of this user; return the paths.

    What is removed only if it is empty comes last, innermost first: several processes have listed it.
    """
    lines = (re.fullmatch(_LINE, line) for line in os.pread(descriptor, _MOST_BYTES, 0).split(b"\n"))
    for match in sorted(filter(None, lines), key=_turn):
        path = os.fsdecode(match[3])
        status = _own(path.rstrip("/"))
        if path not in spared and status and (status.st_dev, status.st_ino) == (int(match[1]), int(match[2])):
            _remove(path)
            yield path


def _turn(match: re.Match[bytes]) -> int:
    """The turn of a line, its folders innermost first."""
    return -match[3].count(b"/") if match[3].endswith(b"/") else -_MOST_BYTES


def _remove(path: str) -> None:
    try:
        if path.endswith("/"):
            os.rmdir(path)
        elif os.path.isdir(path):
            _remove_folder(path)
        else:
            os.unlink(path)
    except OSError:
        return


def _remove_folder(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:  # it is not empty
        import shutil  # which is slow to import

        shutil.rmtree(path, ignore_errors=True)
