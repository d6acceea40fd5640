"""Processes: start one that cannot outlive its parent, find all that descend from this one, end them.

Linux only: orphans are adopted (PR_SET_CHILD_SUBREAPER), so that whatever a program leaves behind can be found.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Mapping, Sequence

__all__ = [
    "adopt_orphans",
    "descendants",
    "die_with_parent",
    "end_descendants",
    "has_lost_children",
    "is_alive",
    "is_ending",
    "kill",
    "kill_group",
    "parent",
    "reap",
    "spawn",
    "started_at",
]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: Fields of /proc/PID/stat, counted from the state, and a flag among the flags.
_FLAGS, _FAULTS_OF_CHILDREN, _STARTED = 6, 8, 19
_PF_EXITING = 4

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents die."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(signum: int, parent: int) -> None:
    """Have the kernel send ``signum`` to this process when ``parent``, which started it, is gone."""
    _libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() != parent:  # it went before the call above
        os.kill(os.getpid(), signum)


def spawn(
    argv: Sequence[str],
    *,
    executable: str,
    environment: Mapping[str, str],
    cwd: str,
    streams: tuple[int, int, int],
    session: bool,
    death_signal: int,
) -> int:
    """Start a program with these stdin, stdout and stderr, leading a group (or session) of its own; return its pid.

    Descriptors that are inheritable stay open in it: an MPI's process manager passes some by number. Raises the
    OSError of chdir or exec.
    """
    report, reporter = os.pipe()  # a successful exec closes it
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            os.setsid() if session else os.setpgid(0, 0)
            die_with_parent(death_signal, parent)
            _install(streams)
            # Python ignores the first two, and what runs in the background the third; programs expect the default
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.chdir(cwd)
            os.execve(executable, list(argv), dict(environment))
        except OSError as error:
            os.write(reporter, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(reporter)
    with open(report, "rb") as stream:
        failure = stream.read()
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)), executable)
    return pid


def _install(streams: tuple[int, int, int]) -> None:
    """Make ``streams`` the descriptors 0, 1 and 2, also where they overlap those."""
    safe = [os.dup(stream) for stream in streams]
    while min(safe) < 3:
        safe = [os.dup(stream) for stream in safe]
    for target, stream in enumerate(safe):
        os.dup2(stream, target)


def reap() -> tuple[list[tuple[int, int]], bool]:
    """Collect the dead children: their (pid, exit code or minus signal), and whether any child is left."""
    dead: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead, False
        if pid == 0:
            return dead, True
        dead.append((pid, os.waitstatus_to_exitcode(status)))


def descendants(ancestor: int) -> list[int]:
    """All living processes below ``ancestor``, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent, state = _parent_and_state(entry)
            if state != "Z":
                children.setdefault(parent, []).append(int(entry))
    found = [ancestor]
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found[1:]


def _parent_and_state(pid: str) -> tuple[int, str]:
    fields = _stat(pid)
    return (int(fields[1]), fields[0].decode()) if fields else (-1, "Z")


def _stat(pid: str) -> list[bytes]:
    """What /proc tells of a process, from its state on; nothing when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b")")[2].split()
    except OSError:
        return []


def end_descendants(*, timeout: float) -> bool:
    """Kill everything below this process and collect it; False when something is still there after ``timeout``."""
    end = time.monotonic() + timeout
    while True:
        _, left = reap()
        if not left:
            return True
        for pid in descendants(os.getpid()):
            kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return False
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Does a process of this pid run (and not only wait to be collected)?"""
    return _parent_and_state(str(pid))[1] != "Z"


def is_ending(pid: int) -> bool:
    """Is the kernel taking this process down, or is it gone? Its files are closed before it counts as dead."""
    fields = _stat(str(pid))
    return not fields or fields[0] == b"Z" or bool(int(fields[_FLAGS]) & _PF_EXITING)


def started_at(pid: int) -> float:
    """When a process started, seconds of the epoch; 0 when it is gone."""
    fields = _stat(str(pid))
    if not fields:
        return 0.0
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_at + int(fields[_STARTED]) / os.sysconf("SC_CLK_TCK")


def parent(pid: int) -> int:
    """The parent of a process; -1 when it is gone."""
    return _parent_and_state(str(pid))[0]


def has_lost_children(pid: int) -> bool:
    """Has a process collected children that had run, and none left?"""
    fields = _stat(str(pid))
    return bool(fields) and int(fields[_FAULTS_OF_CHILDREN]) > 0 and not descendants(pid)


def kill(pid: int, signum: int) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def kill_group(leader: int, signum: int) -> None:
    """Send a signal to a process group that may be gone."""
    try:
        os.killpg(leader, signum)
    except (ProcessLookupError, PermissionError):
        return
