"""Watchman: ends an mpirun that outlives the launcher; while it waits for other hosts it may ignore SIGTERM."""

from __future__ import annotations

import os
import select
import signal

from poprun_py.linux import processes

__all__ = ["watch_over"]

#: Seconds that mpirun may take to end by itself once the launcher is gone (the kernel sends it SIGTERM then).
_GRACE = 1.0

_MOST_DESCRIPTORS = 4096


def watch_over(mpirun: int) -> int:
    """Fork a process that does so; return its pid. To be called before any thread is started."""
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()  # Ctrl-C is for the launcher
        signal.set_wakeup_fd(-1)
        os.closerange(0, _MOST_DESCRIPTORS)
        _watch(launcher, mpirun)
    finally:
        os._exit(0)


def _watch(launcher: int, mpirun: int) -> None:
    ends = select.poll()
    launchers_end, mpiruns_end = os.pidfd_open(launcher), os.pidfd_open(mpirun)
    for descriptor in (launchers_end, mpiruns_end):
        ends.register(descriptor, select.POLLIN)
    if any(descriptor == mpiruns_end for descriptor, _ in ends.poll()):
        return
    ends.unregister(launchers_end)
    if not ends.poll(_GRACE * 1000):
        for pid in [mpirun, *processes.descendants(mpirun)]:
            processes.kill(pid, signal.SIGKILL)
