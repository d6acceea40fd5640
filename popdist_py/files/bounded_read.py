"""Bounded read: reads a whole regular file, and rejects endless and oversized ones."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

_PIECE_BYTES = 1 << 20
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Files that are open already.
_OPEN_FILES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def read_file(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Return the content of a file of at most ``most`` bytes; raise OSError for a longer one, a pipe or a device."""
    descriptor = open_regular(path)
    try:
        return read_descriptor(descriptor, most)
    finally:
        os.close(descriptor)


def open_regular(path: str | os.PathLike[str], flags: int = 0) -> int:
    """Open a file to read it; raise OSError for a folder, a pipe or a device, without waiting for its other end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "It is a pipe or a device, not a regular file", os.fspath(path))


@contextmanager
def without_links(path: str) -> Iterator[str]:
    """Yield a name of the file at the absolute ``path`` that stays valid if its folders are moved or replaced.

    Raise OSError if one of these folders is a symbolic link.
    """
    folder = os.open("/", _FOLDER)
    try:
        *parts, name = path.strip("/").split("/")
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)


def open_given(path: str | os.PathLike[str]) -> int:
    """Open a file, a device, or a pipe that a shell passes as /dev/fd/N; raise OSError for a pipe with a name.

    Opening a named pipe would wait for somebody who writes to it.
    """
    if os.fspath(path).startswith(_OPEN_FILES):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "It is a pipe, no file", os.fspath(path))
    os.set_blocking(descriptor, True)
    return descriptor


def read_descriptor(descriptor: int, most: int | None = None) -> bytes:
    """Return the content of an open file of at most ``most`` bytes; raise OSError for a longer one."""
    size = os.fstat(descriptor).st_size
    if most is not None and size > most:
        raise _too_long(most)
    parts, length = [], 0
    try:
        while part := os.read(descriptor, max(_PIECE_BYTES, size - length + 1)):
            parts.append(part)
            length += len(part)
            if most is not None and length > most:
                raise _too_long(most)
        return b"".join(parts)
    except (MemoryError, OverflowError):
        raise OSError(errno.ENOMEM, f"Its {size:,} bytes do not fit into memory") from None


def _too_long(most: int) -> OSError:
    return OSError(errno.EFBIG, f"It has more than the {most:,} bytes that such a file can have")
