"""Trusted files: checks that a file to be loaded as code can only have been written by this user.

As in ssh's checks of keys, the file, its folder, and all folders and symbolic links on its path must belong to this
user or to root, and nobody else may write to them. A folder with the sticky bit, such as /tmp, may be on the path.

Root and the owner of the running program are trusted like this user, as is, for files next to the source that they
were made from, everyone who can write to that source: each of them already controls this process.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from popdist_py.files.bounded_read import open_regular, read_descriptor

_MOST_LINKS = 40
#: The most bytes of a trusted file, more than any executable has.
_MOST_BYTES = 16 << 30
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UntrustedError(PermissionError):
    """A file is not loaded because other users may have written it."""


class _Trust(NamedTuple):
    """The trusted users, and the bits of a mode that allow others to write."""

    owners: frozenset[int]
    bits: int = 0


def folder_fault(folder: str | os.PathLike[str], *, source: str | os.PathLike[str] = "") -> str:
    """Return why other users may write or replace files in ``folder``; '' if they cannot.

    ``source``: the source that the files are made from, if it is next to ``folder``.
    """
    path = os.path.abspath(folder)
    trust = _trust(path, source)
    try:
        if trust is not plain_trust():
            return _fault(path, os.stat(path), trust)
        *leading, (last, status) = _way(path)
        faults = [_fault(*place, trust, leads=True) for place in leading]
        return next(filter(None, [*faults, _fault(last, status, trust)]), "")
    except OSError as error:
        return f"{path}: {error.strerror}"


def file_fault(path: str | os.PathLike[str], *, source: str | os.PathLike[str] = "") -> str:
    """Return why other users may have written the file ``path`` in a folder without fault; '' if they cannot."""
    try:
        return _fault(os.fspath(path), os.lstat(path), _trust(os.path.dirname(os.path.abspath(path)), source))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{os.fspath(path)}: {error.strerror}"


def read_trusted(path: str | os.PathLike[str], magic: bytes = b"") -> bytes:
    """Return the content of a file in a folder without fault; raise UntrustedError if others may have written it.

    If the file does not begin with ``magic``, only that many bytes are read and returned.
    """
    try:
        descriptor = open_regular(path, os.O_NOFOLLOW)
    except PermissionError:
        if fault := file_fault(path):
            raise UntrustedError(fault) from None
        raise
    try:
        fault = _fault(os.fspath(path), os.fstat(descriptor), plain_trust(), descriptor=descriptor)
        if fault:
            raise UntrustedError(fault)
        start = os.pread(descriptor, len(magic), 0)
        return read_descriptor(descriptor, _MOST_BYTES) if start == magic else start
    finally:
        os.close(descriptor)


def _fault(
    path: str, status: os.stat_result, trust: _Trust, *, leads: bool = False, descriptor: int | None = None
) -> str:
    """The fault of one file; ``leads``: it is a folder or link on the path; ``descriptor``: of an open file."""
    owner, mode = status.st_uid, status.st_mode
    if owner not in trust.owners and not (leads and _is_unmapped(owner)):
        return f"{path} belongs to user {owner}, not to this user ({os.geteuid()})"
    if not mode & _OTHERS or stat.S_ISLNK(mode) or (leads and mode & stat.S_ISVTX):
        return ""
    if mode & stat.S_IWGRP and _has_list(path if descriptor is None else descriptor):
        return f"other users may write to {path} (mode {stat.S_IMODE(mode):o} with an access control list)"
    writable = mode & _OTHERS & ~trust.bits
    if not writable or (writable == stat.S_IWGRP and _is_private(status.st_gid)):
        return ""
    return f"other users may write to {path} (mode {stat.S_IMODE(mode):o})"


def _has_list(file: str | int) -> bool:
    """Whether a file has a POSIX access control list: its group bits are then what users named in it may do."""
    try:
        return bool(os.getxattr(file, "system.posix_acl_access"))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return False
        raise


def _way(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all folders, symbolic links and their targets on the way to ``path``."""
    place, links = "/", 0
    todo = path.split("/")[::-1]
    yield place, os.lstat(place)
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        place = os.path.dirname(place) if name == ".." else os.path.join(place, name)
        status = os.lstat(place)
        yield place, status
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(place)
            place = "/" if target.startswith("/") else os.path.dirname(place)
            todo += target.split("/")[::-1]


@cache
def plain_trust() -> _Trust:
    """The trust in files without a source, constant for the process."""
    owners = {0, os.geteuid()}
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    with suppress(OSError):
        owners.add(os.stat(program).st_uid if program else 0)
    return _Trust(frozenset(owners))


def _trust(folder: str, source_path: str | os.PathLike[str]) -> _Trust:
    if not source_path or os.path.dirname(folder) != os.path.dirname(os.path.abspath(source_path)):
        return plain_trust()
    source = os.stat(source_path)
    bits = source.st_mode & _OTHERS
    if bits & stat.S_IWGRP and _has_list(os.fspath(source_path)):
        bits &= ~stat.S_IWGRP
    return _Trust(plain_trust().owners | {source.st_uid}, bits)


@cache
def _is_private(group: int) -> bool:
    """Whether a group has only this user, as many distributions create one for each user."""
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user and set(entry.gr_mem) <= {user}


@cache
def _is_unmapped(user: int) -> bool:
    """Whether ``user`` stands for the users outside a user namespace, such as the host's root in a container."""
    try:
        with open("/proc/sys/kernel/overflowuid") as unmapped, open("/proc/self/uid_map") as users:
            return user == int(unmapped.read()) and users.read().split() != ["0", "0", "4294967295"]
    except (OSError, ValueError):
        return False
