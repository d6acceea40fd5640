"""Session folders: finds the folders that Open MPI's daemons and programs make for a job in the temporary folder.

    TMP/prterun.PID, prted.PID, ompi.PID        of the daemon with this pid
    TMP/ompi.HOST.UID/jf.0/JOB/RANK             of a program that gets no folder from a daemon

A program has the latter when its daemon has died before the program initialises MPI, which then makes it a job of one
process. JOB is a hash of the job's name. Open MPI puts nothing into such a folder that /dev/shm can hold.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Iterable, Sequence

from poprun_py.linux import processes
from poprun_py.linux.job_record import is_private

#: The session folder of a daemon of Open MPI; its pid follows.
_SESSIONS = ("ompi", "prterun", "prted")

#: The system call that tells when a file was made: what to ask it for, and where in its answer the time lies.
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME = -100, 0x100, 0x800
_STATX_BYTES, _MASK, _BORN = 256, struct.Struct("I"), struct.Struct("80xqI")

#: Seconds by which the times of files and processes may be wrong.
_CLOCK_TICK = 0.05

_libc = ctypes.CDLL(None, use_errno=True)


def folders_of(daemon: int, temporary: Sequence[str]) -> list[str]:
    """Return the session folders of a living daemon of Open MPI, which are named after its pid.

    One that is older than the daemon is another's: of a daemon that has died, or of one in another container.
    """
    candidates = (os.path.join(folder, f"{name}.{daemon}") for folder in temporary for name in _SESSIONS)
    folders = [path for path in candidates if os.path.isdir(path)]
    earliest = processes.started_at(daemon) - _CLOCK_TICK if folders and processes.is_alive(daemon) else 0.0
    return [path for path in folders if earliest > 0.0 and _born_at(path) >= earliest]


def folders_without_daemon(pids: Iterable[int], job: str, temporary: Sequence[str], since: float) -> list[str]:
    """Return the folders made after ``since`` by programs that had these pids and have ended, innermost first.

    ``job`` is the name by which Open MPI knows their job, which they use while it answers; it may be empty. The paths
    end in a slash, by which a job record removes folders only if they are empty.
    """
    hosts, folders = _host_names(), list[str]()
    jobs = singletons(hosts, pids) | ({_number(job)} if job else set())
    tops = (os.path.join(folder, f"ompi.{host}.{os.getuid()}") for folder in temporary for host in hosts)
    for top in filter(is_private, tops):
        family = os.path.join(top, "jf.0")
        numbers = jobs.intersection(_names(family))
        others = singletons(hosts, processes.all_pids()) if numbers else set()  # which may have the same hash
        paths = [os.path.join(family, name) for name in sorted(numbers - others)]
        ranks = [os.path.join(path, rank) for path in paths for rank in _names(path)]
        folders += [*ranks, *paths, *([family, top] if paths else [])]
    return [f"{path}/" for path in folders if _born_at(path) >= since - _CLOCK_TICK]


def began_at(record: str, latest: float) -> float:
    """Return when a job began on this host, in seconds of the epoch: when its record was made, or ``latest``.

    Its programs do not all start at once, and the first makes the folders that the others share.
    """
    return min(_born_at(record) or latest, latest)


def _host_names() -> list[str]:
    """The names of this host that Open MPI may use: without its domain, but an address as a whole."""
    name = os.uname().nodename
    return list(dict.fromkeys((name.partition(".")[0], name)))


def singletons(hosts: Iterable[str], pids: Iterable[int]) -> set[str]:
    """Open MPI's numbers of jobs of one process, which has one of these pids."""
    numbers = list(pids)
    return {_number(f"singleton.{host}.{pid}") for host in hosts for pid in numbers}


def _number(job: str) -> str:
    """Open MPI's number of a job: the hash of its name before the last @, and the number behind that."""
    head, _, number = job.rpartition("@") if "@" in job else (job, "", "0")
    code = 0
    for byte in os.fsencode(head):
        code = (code + byte) * 1025 & 0xFFFFFFFF
        code ^= code >> 6
    code = code * 9 & 0xFFFFFFFF
    code = (code ^ code >> 11) * 32769 & 0xFFFFFFFF
    plain = int(number) if re.fullmatch(r"[0-9]{1,9}", number) else 0
    return str(((code >> 16 ^ code) & 0xFFFF) << 16 | plain & 0xFFFF)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _born_at(path: str) -> float:
    """When a file or folder was made, in seconds of the epoch; where nobody knows, when it was last changed."""
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    known = hasattr(_libc, "statx") and not _libc.statx(
        _AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, answer
    )
    if known and _MASK.unpack_from(answer)[0] & _STATX_BTIME:
        seconds, nanoseconds = _BORN.unpack_from(answer)
        return float(seconds + nanoseconds * 1e-9)
    try:
        return os.lstat(path).st_ctime
    except OSError:
        return 0.0
