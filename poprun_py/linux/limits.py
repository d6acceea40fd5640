"""Limits: limits of the operating system that a job may exceed: raised if possible, or reported with the remedy."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from poprun_py.errors import PROCESS_LIMIT_ADVICE, PoprunError

#: Open files that the launcher and the MPI's process manager need, and those that each instance adds.
_ALWAYS, _PER_INSTANCE = 48, 6

#: The same for processes and threads, with a margin for the threads of programs.
_PROCESSES, _PROCESSES_PER_INSTANCE = 8, 8

#: CAP_SYS_ADMIN and CAP_SYS_RESOURCE: a process with one of them has no limit of processes.
_UNLIMITED = 1 << 21 | 1 << 24


def allow_open_files(num_instances: int) -> None:
    """Raise the limit of open files to what a job of ``num_instances`` needs; raise PoprunError if it cannot."""
    needed = _ALWAYS + _PER_INSTANCE * num_instances
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise PoprunError(
            f"a job of {num_instances} instance{'s' * (num_instances > 1)} needs {needed} open files, and {hard} are "
            f"allowed here; raise the limit (ulimit -n {needed})"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def process_shortage(num_instances: int) -> str:
    """Return the limit that lets fewer processes start than a job of ``num_instances`` needs; '' if none."""
    needed = _PROCESSES + _PROCESSES_PER_INSTANCE * num_instances
    groups = _groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    limits = [*_of_user(Path("/proc")), *(group_limit for group in groups for group_limit in _of_group(group))]
    room, limit = min(limits, default=(needed, ""))
    if room >= needed:
        return ""
    return (
        f"{limit}, which leaves room for {max(room, 0)} more processes and threads here, and such a job may need "
        f"{needed}; if that is the reason, {PROCESS_LIMIT_ADVICE}"
    )


def _of_user(proc: Path) -> Iterator[tuple[int, str]]:
    """The number of processes and threads that this user may still start, and the limit that determines it."""
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    own = _status(proc / "self")
    if most == resource.RLIM_INFINITY or os.getuid() == 0 or int(own.get("CapEff", "0"), 16) & _UNLIMITED:
        return
    others = (_status(path) for path in proc.iterdir() if path.name.isdigit())
    used = sum(int(status["Threads"]) for status in others if status.get("Uid", "").split()[:1] == [str(os.getuid())])
    yield most - used, f"ulimit -u is {most}"


def _status(process: Path) -> dict[str, str]:
    """The fields of /proc/PID/status; none for a process that has ended."""
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _groups(membership: Path, mounted: Path) -> Iterator[Path]:
    """The control groups that may limit this process, from its own to the outermost."""
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "pids"):
                continue
            root = mounted / controllers
            own = root / path.lstrip("/")
            yield from (group for group in (own, *own.parents) if group == root or root in group.parents)


def _of_group(group: Path) -> Iterator[tuple[int, str]]:
    """The number of processes and threads that may still start in a control group, and its limit."""
    with suppress(OSError, ValueError):  # there is none: "max" is no number
        most = int((group / "pids.max").read_text())
        yield most - int((group / "pids.current").read_text()), f"pids.max is {most}"
