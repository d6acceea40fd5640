"""Instance logs: the files of --log-dir, one per instance and stream, readable by the user only."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from poprun_py.errors import UsageError
from poprun_py.output.tagged_output import Tagger
from poprun_py.output.writer_thread import WriterThread
from poprun_py.wire.messages import STREAMS

_LOCK = ".poprun-py.lock"
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def held_logs(folder: str | None) -> Iterator[None]:
    """Keep other jobs from writing logs to ``folder``, which is made; raise UsageError if one does that already."""
    if folder is None:
        yield
        return
    from filelock import FileLock, Timeout  # most jobs write no logs

    lock = FileLock(os.path.join(folder, _LOCK), 0, mode=0o600, fallback_to_soft=False)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with suppress(NotImplementedError):  # a file system without locks
            lock.acquire()
    except Timeout:
        raise UsageError([f"--log-dir {folder}: another job writes to it; name another folder"]) from None
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        yield
    finally:
        lock.release()


class InstanceLogs:
    """The log files ``DIR/instance-0.stdout`` and so on; after a restart ``DIR/instance-0.restart-1.stdout``.

    Lines have no tags; of a progress bar only the last state is kept. Nothing is written before ``writer`` starts.
    Raises UsageError if a file cannot be created.
    """

    def __init__(self, folder: str, num_instances: int, *, restart: int, wake: Callable[[], None]) -> None:
        self.folder = folder
        self._infix = f".restart-{restart}" if restart else ""
        self.writer = WriterThread(-1, wake)
        self._descriptors: dict[tuple[int, int], int] = {}
        self._lines: dict[tuple[int, int], Tagger] = {}
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            for rank in range(num_instances):
                for stream in STREAMS:
                    self._open(rank, stream)
        except OSError as error:
            self.close()
            raise _unusable(folder, error) from None

    def path(self, rank: int, stream: int) -> str:
        return os.path.join(self.folder, f"instance-{rank}{self._infix}.{STREAMS[stream]}")

    def write(self, rank: int, stream: int, data: bytes, done: Callable[[], None]) -> None:
        """Queue the lines that ``data`` completes; ``writer`` returns ``done`` once they are written."""
        self.writer.put(self._lines[rank, stream].feed(data), done, to=self._descriptors[rank, stream])

    def finish(self, rank: int) -> None:
        """Write the last lines of an instance, even without a newline."""
        for stream in STREAMS:
            self.writer.put(self._lines[rank, stream].finish(), to=self._descriptors[rank, stream])

    def close(self) -> None:
        """Write what is queued, and close the files."""
        self.writer.close()
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _open(self, rank: int, stream: int) -> None:
        path = self.path(rank, stream)
        try:
            self._descriptors[rank, stream] = _created(path)
        except FileExistsError:
            self._descriptors[rank, stream] = _emptied(path)
        self._lines[rank, stream] = Tagger(b"")


def _created(path: str) -> int:
    return os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)


def _emptied(path: str) -> int:
    """Open what is at ``path``: a file, which is emptied, or a pipe that is read; raise OSError if it is not ours."""
    status = os.lstat(path)
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and status.st_uid == os.geteuid():
        os.unlink(path)  # its other names keep their file
        return _created(path)
    try:
        descriptor = os.open(path, _FLAGS | os.O_NONBLOCK)  # else it would wait for somebody who reads a pipe
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "it is a pipe that nobody reads", path) from None
        raise
    try:
        opened = os.fstat(descriptor)
        if opened.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"it belongs to user {opened.st_uid}", path)
        os.fchmod(descriptor, 0o600)  # an older file may have another mode
        os.set_blocking(descriptor, True)
        if stat.S_ISREG(opened.st_mode):
            os.truncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _unusable(folder: str, error: OSError) -> UsageError:
    where = f"--log-dir {folder}: {error.filename or folder}"
    return UsageError([f"{where} cannot be written: {error.strerror}; name another folder"])
