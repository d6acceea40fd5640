"""Atomic write: writes a file completely or not at all, under a temporary name in the same folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from popdist_py.files.bounded_read import open_regular, without_links

#: Characters of a file's name that its temporary name repeats; names have at most 255 bytes.
_NAME_CHARACTERS = 40
#: Symbolic links that are followed one after the other, as many as Linux follows.
_MOST_LINKS = 40
#: Bytes that are copied at a time.
_PIECE_BYTES = 1 << 20
_PLANTED = "it is a pipe or a device of another user"


def replace_file(
    path: str | os.PathLike[str],
    *parts: bytes | memoryview,
    sync: bool = False,
    mode: int = 0o666,
    follow: bool = True,
) -> None:
    """Write ``parts`` to ``path``; if that fails, raise OSError and leave the old file unchanged.

    A symbolic link stays one: the file that it points to is replaced. A device or a pipe that is read, such as
    /dev/stdout, is written to directly. A link or a pipe that another user may have planted is refused. Without
    ``follow`` all these are replaced. With ``sync``, content and name are on the disk on return. ``mode``: the
    permissions of the file, restricted by the umask.
    """
    target = followed(os.path.abspath(path)) if follow else os.path.abspath(path)
    if follow and _is_stream(target):
        _write_stream(target, parts)
        return
    with _replacement(target, mode, sync=sync) as file:
        file.writelines(parts)
    if sync:
        sync_folder(os.path.dirname(target))


def change_file(path: str, pieces: Iterable[tuple[int, bytes | memoryview]]) -> None:
    """Write ``pieces`` at their offsets into a regular file; if that fails, raise OSError and leave it unchanged.

    A changed copy replaces the file, with its mode. No part of the absolute ``path`` may be a symbolic link.
    """
    import shutil  # which is slow to import

    with without_links(path) as target, os.fdopen(open_regular(target, os.O_NOFOLLOW), "rb", buffering=0) as old:
        mode = stat.S_IMODE(os.fstat(old.fileno()).st_mode) & 0o777
        with _replacement(target, mode) as file:
            with suppress(OSError):  # a file system without modes
                os.fchmod(file.fileno(), mode)  # which the umask has reduced
            shutil.copyfileobj(old, file, _PIECE_BYTES)
            for offset, piece in pieces:
                file.seek(offset)
                file.write(piece)


def write_fault(path: str | os.PathLike[str]) -> str:
    """Return why ``path`` cannot be written and what to do, as far as this is known before writing; else ''."""
    try:
        target = followed(os.path.abspath(path))
    except OSError as error:
        return f"{error.strerror}; choose another place"
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        return f"there is no folder {folder}; create it first"
    if os.path.isdir(target):
        return "it is a folder; give the name of a file"
    if _is_planted_stream(target):
        return f"{_PLANTED}; choose another place"
    if not os.access(target if _is_stream(target) else folder, os.W_OK):
        return "permission denied; choose another place"
    return ""


@contextmanager
def _replacement(target: str, mode: int, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Yield a new file, which replaces ``target`` at the end of the block unless the block raises."""
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:_NAME_CHARACTERS]}.{os.urandom(8).hex()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _write_stream(path: str, parts: tuple[bytes | memoryview, ...]) -> None:
    """Write to a device or a pipe; raise OSError for a pipe that nobody reads, and for one of another user."""
    own = _names_open_file(path)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | (0 if own else os.O_NOFOLLOW | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "it is a pipe that nobody reads", path) from None
        raise
    with os.fdopen(descriptor, "wb") as stream:
        if not own:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) or not _is_trusted_owner(status.st_uid, path):
                raise OSError(errno.EACCES, _PLANTED, path)
            os.set_blocking(descriptor, True)
        stream.writelines(parts)


def _is_planted_stream(path: str) -> bool:
    return _is_stream(path) and not _names_open_file(path) and not _is_trusted_owner(os.lstat(path).st_uid, path)


def followed(path: str) -> str:
    """Follow symbolic links, except those of /dev and /proc to open files, which are written directly.

    Raise OSError at a link that belongs neither to this user nor to root nor to the owner of its folder.
    """
    for _ in range(_MOST_LINKS + 1):
        if not os.path.islink(path) or _names_open_file(path):
            return path
        if not _is_trusted_owner(os.lstat(path).st_uid, path):
            raise OSError(errno.EACCES, "it is a link that belongs to another user", path)
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _is_trusted_owner(user: int, path: str) -> bool:
    """Whether ``user``, who owns ``path``, is this user, root, or the owner of its folder."""
    return user in (os.geteuid(), 0, os.stat(os.path.dirname(path)).st_uid)


def _is_stream(path: str) -> bool:
    return _names_open_file(path) or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def _names_open_file(path: str) -> bool:
    return path.startswith(("/dev/std", "/dev/fd/", "/proc/"))


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Flush the directory entries of ``folder`` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
