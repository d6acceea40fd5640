"""MPI files: finds the files that an MPI creates for a job in /dev/shm and the temporary folder, as they appear.

inotify reports new files; a file is the job's if one of the job's processes has it open or mapped, or, for files of a
process manager, has its path in memory. A new segment that no process of this machine holds is of a process that died
while creating it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import signal
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

from poprun_py.linux import processes

#: Where MPIs make files, whatever TMPDIR is.
FOLDERS = ("/dev/shm", "/tmp")

#: The files for which the job's processes are checked: MPICH's, those of its process manager, UCX's, Open MPI's.
_NAMES = re.compile(
    r"(mpich_shm_|hydra_hwloc_xmlfile_|ucx_shm_posix_|open_mpi\.|sm_segment\.|vader_segment\.|osc_\w+\.)[\w.-]+"
)

#: Files without a holder only if their creator is dead: shared memory of MPICH and UCX, Open MPI's test of it.
_SEGMENTS = r"mpich_shm_[0-9a-f]{1,8}_\d+|ucx_shm_posix_[0-9a-f]{1,8}|open_mpi\.\d{4}"

#: Files that their creators close at once and know by name until they remove them; the creator's command.
_CLOSED, _MAKER = r"hydra_hwloc_xmlfile_\w{6}", "hydra_pmi_proxy"

#: The most bytes of a heap, far more than a process manager has.
_MOST_BYTES = 1 << 26

_HEAP = r"(?m)^([0-9a-f]+)-([0-9a-f]+) .*\[heap\]$"

_IN_CREATE, _IN_NONBLOCK, _IN_CLOEXEC = 0x100, os.O_NONBLOCK, os.O_CLOEXEC
_EVENT = struct.Struct("iIII")

_libc = ctypes.CDLL(None, use_errno=True)


def folders_here() -> list[str]:
    """Return where MPIs make files on this host."""
    return sorted({*FOLDERS, os.environ.get("TMPDIR", "/tmp")})


class MpiFiles:
    """Watches ``folders``, and finds the new files that are held by the processes ``family()``.

    Without inotify the folders are read instead, at every ``new_files``: where the kernel refuses it (it limits the
    number of its users), and where ``is_told`` is false. To end the use of inotify takes the kernel 5 to 15 ms.
    """

    def __init__(
        self, family: Callable[[], Iterable[int]], folders: Sequence[str] = FOLDERS, *, is_told: bool = True
    ) -> None:
        self._family = family
        self._folders: dict[int, str] = {}
        self._unknown = folders
        self._found: set[str] = set()
        self._candidates = set(_all_in(folders))
        self._before = frozenset(self._candidates)
        self._made: set[str] = set()  # segments that have appeared since, and that were not found
        self._descriptor: int = _libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC) if is_told else -1
        if self._descriptor >= 0:
            for folder in folders:
                watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _IN_CREATE)
                if watch >= 0:
                    self._folders[watch] = folder
            self._unknown = [folder for folder in folders if folder not in self._folders.values()]

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when files appear; -1 without inotify."""
        return self._descriptor

    def read(self) -> bool:
        """Take note of the files that have appeared; return whether any may be of an MPI."""
        before = len(self._candidates)
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            return False
        while data:
            watch, _, _, length = _EVENT.unpack_from(data)
            name = data[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode(errors="surrogateescape")
            data = data[_EVENT.size + length :]
            if watch in self._folders and _NAMES.fullmatch(name):
                self._add(os.path.join(self._folders[watch], name))
        return len(self._candidates) > before

    def new_files(self) -> list[str]:
        """Return the files that the job's processes hold now and that were not returned before."""
        self._update()
        identities = dict(_identities(self._candidates))
        self._candidates = {path for path in self._candidates if path in identities.values()}
        closed = [path for path in self._candidates if re.fullmatch(_CLOSED, os.path.basename(path))]
        held: set[str] = set()
        for pid in self._family() if identities else ():
            held.update(identities[identity] for identity in _held_by(pid) if identity in identities)
            if closed and processes.command(pid) == _MAKER:
                heap = _heap(pid)
                held.update(path for path in closed if os.fsencode(path) in heap)
        new = held - self._found
        self._found |= held
        self._candidates -= held
        self._made -= held
        return sorted(new)

    def abandoned(self) -> list[str]:
        """Return the segments that were made since this watches and that no process of this machine holds."""
        self._update()
        return sorted(filter(_is_held_by_nobody, self._made))

    def _update(self) -> None:
        if self._descriptor >= 0:
            self.read()
        for path in _all_in(self._unknown):
            if path not in self._before:
                self._add(path)

    def _add(self, path: str) -> None:
        self._candidates.add(path)
        if re.fullmatch(_SEGMENTS, os.path.basename(path)):
            self._made.add(path)

    def close(self) -> None:
        """Stop watching; the kernel's 15 ms for it do not delay the caller, even if it ends."""
        if self._descriptor >= 0:
            import threading  # most supervisors have no use for it

            threading.Thread(target=os.close, args=(self._descriptor,), daemon=True).start()
            self._descriptor = -1


def _all_in(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        yield from (os.path.join(folder, name) for name in names if _NAMES.fullmatch(name))


def _identities(paths: Iterable[str]) -> Iterator[tuple[tuple[int, int], str]]:
    for path in paths:
        try:
            status = os.lstat(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EACCES):
                raise
            continue
        yield (status.st_dev, status.st_ino), path


def _is_held_by_nobody(path: str) -> bool:
    """Whether no process has a segment open or mapped, in any container: else the kernel grants no lease on it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # if somebody opens it now: ignored, unlike SIGIO
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _held_by(pid: int) -> Iterator[tuple[int, int]]:
    """Device and inode of every file that a process has open or mapped; none if it is gone, or another user's."""
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for descriptor in descriptors:
        try:
            status = os.stat(f"/proc/{pid}/fd/{descriptor}")
        except OSError:  # it was closed
            continue
        yield status.st_dev, status.st_ino
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as stream:
            for line in stream:
                _, _, _, device, inode = line.split(None, 5)[:5]
                if inode != "0":
                    major, minor = device.split(":")
                    yield os.makedev(int(major, 16), int(minor, 16)), int(inode)
    except OSError:
        pass


def _heap(pid: int) -> bytes:
    """The heap of a process; nothing if it is gone, or may not be read."""
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as stream:
            limits = re.search(_HEAP, stream.read())
        if limits is None:
            return b""
        first, last = (int(word, 16) for word in limits.groups())
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as stream:
            return os.pread(stream.fileno(), min(last - first, _MOST_BYTES), first)
    except OSError:
        return b""
