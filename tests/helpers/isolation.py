"""Isolation: runs a process in its own namespaces, with its own /tmp, /dev/shm and list of processes.

Any file or process found there at the end was left by the isolated process. The checkout and Python stay visible.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path

__all__ = ["cover", "isolate", "run_isolated", "unavailable"]

ROOT = Path(__file__).parents[2]

_NEWNS, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG = 1

#: Paths that stay visible below a folder that is covered by an empty one.
_VISIBLE = (ROOT, Path(sys.base_prefix), Path(sys.prefix))


def isolate() -> None:
    """Continue in a child that sees its own processes, /tmp, /dev/shm and network; raise OSError if that fails.

    The calling process remains as the parent, and ends as the child does; if it is killed, so are its descendants.
    """
    user, group = os.geteuid(), os.getegid()
    _unshare(_NEWNS | _NEWPID | _NEWNET | (_NEWUSER if user else 0))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _go_on_in_child(wait_for_all=False)  # process 1 of the namespace, which adopts and reaps orphans
    _go_on_in_child(wait_for_all=True)
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "proc", "proc", "/proc")
    _run("ip", "link", "set", "lo", "up")
    _run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    cover("/tmp", mode="1777")
    os.chdir("/")


def cover(folder: str, *, mode: str = "755", size: str = "50%") -> None:
    """Mount an empty file system on ``folder``, in which only the checkout and Python are visible."""
    seen = [path for path in dict.fromkeys(map(Path.resolve, _VISIBLE)) if path.is_relative_to(folder)]
    seen = [path for path in seen if not any(path != other and path.is_relative_to(other) for other in seen)]
    new = Path("/mnt")
    _run("mount", "-t", "tmpfs", "-o", f"mode={mode},size={size}", "tmpfs", str(new))
    for path in seen:
        place = new / path.relative_to(folder)
        place.mkdir(parents=True)
        _run("mount", "--bind", str(path), str(place))
    _run("mount", "--move", str(new), folder)


def run_isolated(call: Callable[[], int]) -> int:
    """Return the result of ``call``, 0 to 255, run in an isolated process."""
    pid = os.fork()
    if not pid:
        code = 255
        try:
            isolate()
            code = call()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@cache
def unavailable() -> str:
    """Why processes cannot be isolated here; "" if they can."""
    command = [sys.executable, "-c", "from tests.helpers.isolation import isolate; isolate()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return f"needs namespaces: {done.stderr.strip().splitlines()[-1]}" if done.returncode else ""


def _unshare(flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        error = ctypes.get_errno()
        raise OSError(error, f"unshare: {os.strerror(error)}")


def _go_on_in_child(*, wait_for_all: bool) -> None:
    """Return in the child; the parent waits for it, and ends as it does."""
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the child gets them too, or is killed with this process
    while True:
        ended, status = os.waitpid(-1 if wait_for_all else pid, 0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise OSError(f"{' '.join(command)}: {ended.stderr.strip()}")
