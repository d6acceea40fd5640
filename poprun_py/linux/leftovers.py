"""Leftovers: the files that an MPI leaves in /dev/shm and the temporary folder after a failure, and their removal.

Only entries with the names below that this user owns, were created since the job started, and no process uses.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence

from poprun_py.linux.processes import is_alive, started_at

__all__ = ["FOLDER_PREFIX", "LEFTOVERS", "remove_leftovers"]

#: Names of the MPIs' shared segments and session folders; group 1 is the pid of the owner, if the name has it.
LEFTOVERS: tuple[str, ...] = (
    r"mpich_shm_\w+",
    r"ucx_shm_posix_\w+",
    r"sm_segment\..+",
    r"vader_segment\..+",
    r"hydra_hwloc_xmlfile_\w+",
    r"(?:ompi|prterun|prted)\.(\d+)",  # not ompi.<host>.<uid>, which several jobs may share
    r"osc_(?:rdma|sm)\..+",
)

#: MPICH's process manager passes the name of this file to processes, which open it when they start MPI.
_PROXY, _PROXY_NEEDS, _PROXY_SECONDS = "hydra_pmi_proxy", "hydra_hwloc_xmlfile_", 3.0

#: Prefix of the folders of one job; HOST.PID.RANDOM of its launcher follows.
FOLDER_PREFIX = "poprun-py."

_OF_A_JOB = re.escape(f"{FOLDER_PREFIX}{os.uname().nodename}.") + r"(?P<job>\d+)\.[0-9a-f]+"
_PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in (*LEFTOVERS, _OF_A_JOB)))


def remove_leftovers(*, since: float, folders: Sequence[str] | None = None) -> list[str]:
    """Remove the leftovers created after ``since`` (seconds of the epoch; 0: all); return their paths."""
    folders = folders or sorted({"/dev/shm", "/tmp", os.environ.get("TMPDIR", "/tmp")})
    found = [path for folder in folders for path in _leftovers(folder, since)]
    used = _in_use(found) if found else set()
    removed = [path for path in found if path not in used]
    for path in removed:
        _remove(path)
    return removed


def _leftovers(folder: str, since: float) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        match = _PATTERN.fullmatch(entry.name)
        if match and not ((owner := match[1] or match["job"]) and is_alive(int(owner))) and _is_ours(entry, since):
            yield entry.path


def _is_ours(entry: os.DirEntry[str], since: float) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return kind and status.st_uid == os.getuid() and status.st_ctime >= since - 0.05


def _in_use(paths: Sequence[str]) -> set[str]:
    """Those of ``paths`` that a process has mapped or open (or, of folders, something in it)."""
    used: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        text = _held_by(pid)
        used.update(path for path in paths if path in text)
        if _name(pid) == _PROXY:
            used.update(path for path in paths if _PROXY_NEEDS in path and _may_need(int(pid), path))
    return used


def _may_need(proxy: int, path: str) -> bool:
    """Was a file created in the first seconds of a process manager that sees it (and has no /tmp of its own)?"""
    try:
        made = os.lstat(path)
        seen = os.path.samestat(made, os.lstat(f"/proc/{proxy}/root{os.path.abspath(path)}"))
    except OSError:
        return False
    return seen and abs(made.st_ctime - started_at(proxy)) < _PROXY_SECONDS


def _name(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm") as stream:
            return stream.read().rstrip()
    except OSError:
        return ""


def _held_by(pid: str) -> str:
    held = []
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as stream:
            held.append(stream.read())
        with os.scandir(f"/proc/{pid}/fd") as entries:
            held += [os.readlink(entry.path) for entry in entries]
    except OSError:  # the process is gone, or another user's
        pass
    return "\n".join(held)


def _remove(path: str) -> None:
    import shutil  # rarely needed

    try:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except OSError:
        return
