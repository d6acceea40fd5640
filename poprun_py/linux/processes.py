"""Processes: starting one that cannot outlive its parent, finding all descendants of this one, ending them.

Linux only: orphans are adopted (PR_SET_CHILD_SUBREAPER), so that all descendants of a program can be found.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from poprun_py.errors import PROCESS_LIMIT_ADVICE

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

#: Fields of /proc/PID/stat, counted from the state; psutil has none of them.
_FLAGS, _FAULTS_OF_CHILDREN, _STARTED = 6, 8, 19
_PF_EXITING, _PF_DUMPCORE = 0x4, 0x200

#: Seconds that chdir and exec may take: less than the launcher waits for instances to start.
EXEC_TIMEOUT = 20.0

_TICKS = os.sysconf("SC_CLK_TCK")

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(signum: int, parent: int) -> None:
    """Have the kernel send ``signum`` to this process when ``parent``, which started it, ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call above
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
    """Start a program with these stdin, stdout and stderr in a group (or session) of its own; return its pid.

    Inheritable descriptors stay open in it: an MPI's process manager passes some by number. Raises the OSError of
    fork, chdir or exec, or TimeoutError after 20 s in which the caller does nothing else.
    """
    report, reporter = os.pipe()  # a successful exec closes the writing end
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(report)
        os.close(reporter)
        raise OSError(error.errno, f"{error.strerror}; {PROCESS_LIMIT_ADVICE}", executable) from None
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            if death_signal != signal.SIGKILL:
                signal.signal(death_signal, signal.SIG_DFL)  # a handler of Python's would swallow it until exec
            os.setsid() if session else os.setpgid(0, 0)
            die_with_parent(death_signal, parent)
            _install(streams)
            # Python ignores the first two, a shell's background jobs the third; programs expect the default action
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
        if not select.select([stream], [], [], EXEC_TIMEOUT)[0]:
            kill(pid, signal.SIGKILL)  # it may not end before the file system answers, and is not waited for
            text = f"its file or folder did not answer within {EXEC_TIMEOUT:g} s, as on a dead network file system"
            raise TimeoutError(errno.ETIMEDOUT, text, executable)
        failure = stream.read()
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)), executable)
    return pid


def proc_fault() -> str:
    """Return why processes cannot be found on this host, and what to do; '' if they can."""
    if os.path.exists(f"/proc/{os.getpid()}/stat"):
        return ""
    return "/proc does not list this process, so those of a job cannot be found; mount it: mount -t proc proc /proc"


def close_listening_sockets() -> None:
    """Close the listening sockets that this process has inherited; call it before it opens any of its own."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as copy:
                    if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        os.close(int(name))
        except OSError:  # it is closed by now
            continue


def close_all_but(descriptor: int) -> None:
    """Close all descriptors but one: others may wait for the end of pipes that they passed to this process."""
    os.closerange(0, descriptor)
    os.closerange(descriptor + 1, 1024)


def _install(streams: tuple[int, int, int]) -> None:
    """Make ``streams`` the descriptors 0, 1 and 2, even if they overlap those."""
    safe = [os.dup(stream) for stream in streams]
    while min(safe) < 3:
        safe = [os.dup(stream) for stream in safe]
    for target, stream in enumerate(safe):
        os.dup2(stream, target)


def reap() -> tuple[list[tuple[int, int]], bool]:
    """Collect the ended children; return their (pid, exit code or minus signal), and whether any child is left."""
    dead: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead, False
        if pid == 0:
            return dead, True
        dead.append((pid, os.waitstatus_to_exitcode(status)))


def all_pids() -> list[int]:
    """Return the pids of all processes that this one can see."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def descendants(ancestor: int) -> list[int]:
    """Return all running descendants of ``ancestor``, parents before children."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        parent, state = _parent_and_state(str(pid))
        if state != "Z":
            children.setdefault(parent, []).append(pid)
    family = [ancestor]
    for pid in family:  # grows while it is walked
        family += children.get(pid, [])
    return family[1:]


def _parent_and_state(pid: str) -> tuple[int, str]:
    fields = _stat(pid)
    return (int(fields[1]), fields[0].decode()) if fields else (-1, "Z")


def _stat(pid: str) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b")")[2].split()
    except OSError:
        return []


def end_descendants(*, timeout: float) -> bool:
    """Kill and collect all descendants of this process; return False if some are left after ``timeout`` seconds."""
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


def command(pid: int) -> str:
    """Return the name of the command that a process runs, its first 15 bytes; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as stream:
            return stream.read().strip().decode(errors="replace")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether there is a process with this pid that is not a zombie."""
    return _parent_and_state(str(pid))[1] != "Z"


def is_ending(pid: int) -> bool:
    """Whether this process is exiting (also while its core is dumped), a zombie, or gone."""
    fields = _stat(str(pid))
    return not fields or fields[0] == b"Z" or bool(int(fields[_FLAGS]) & (_PF_EXITING | _PF_DUMPCORE))


def started_at(pid: int) -> float:
    """Return when a process started, in seconds of the epoch; 0 if it is gone."""
    ticks = start_ticks(pid)
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted_at + ticks / _TICKS if ticks >= 0 else 0.0


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; -1 if it is gone."""
    fields = _stat(str(pid))
    return int(fields[_STARTED]) if fields else -1


def parent(pid: int) -> int:
    """Return the parent of a process; -1 if it is gone."""
    return _parent_and_state(str(pid))[0]


def has_lost_children(pid: int) -> bool:
    """Whether a process has had children, and has none now."""
    fields = _stat(str(pid))
    return bool(fields) and int(fields[_FAULTS_OF_CHILDREN]) > 0 and not descendants(pid)


def kill(pid: int, signum: int) -> None:
    """Send a signal to a process that may be gone, or to the group of the leader ``-pid``."""
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def resource_usage(pid: int) -> tuple[float, int]:
    """Return the usage of a process and its descendants: seconds of CPU since its start, bytes of resident memory."""
    import psutil  # only a live view needs it, and it takes longer to import than all of a supervisor

    seconds, size = 0.0, 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with suppress(psutil.Error), member.oneshot():  # it may be gone
                seconds += sum(member.cpu_times()[:4])  # user and system, and those of ended children
                size += member.memory_info().rss
    return seconds, size
