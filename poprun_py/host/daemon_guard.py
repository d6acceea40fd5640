"""Daemon guard: the script that a remote host runs next to Open MPI's daemon, which it ends if nothing else does.

    sshd: the session of mpirun's ssh
    +-- first            prted or orted, or the shell that starts it
        +-- guard
        +-- daemon       forked by the first
            +-- holder   of the first supervisor, and so on

A daemon whose mpirun dies before it has answered waits forever, and has not yet started a supervisor that would end
it. Python runs this without site (-S), so it sets the path of the package itself.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poprun_py.linux.job_record import JobRecord

#: Prefixes of the commands of daemons, which do not match other commands of a user, such as prte.
_NAMES = ("orted", "prted")

#: Seconds between checks of the daemon: at first, and later.
_SHORTEST, _LONGEST = 0.05, 1.0

#: Seconds after which a daemon that has started nothing is ended, regardless of its session. The launcher gives up
#: much sooner, unless the job has thousands of instances.
_START_TIMEOUT = 7200.0

#: The same for a daemon whose parent adopts orphans: its session is over, unless that process has started it.
ORPHAN_TIMEOUT, _INIT = 10.0, 1

#: The signals to a daemon whose session is over, and the seconds that it then has to end: at first by itself.
_ENDING = ((0, 0.5), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.5))


def main() -> int:
    """Guard the daemon that our parent is, or will start; ``argv[1]`` is the job's own folder, or empty."""
    os.closerange(0, 1024)  # sshd waits for the end of pipes that it passed to this process
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from poprun_py.linux.job_record import JobRecord

    try:
        record = JobRecord(sys.argv[1]) if any(sys.argv[1:]) else None
    except OSError:  # the job works without a record
        record = None
    try:
        first = _first()
        guard = DaemonGuard(first, record) if first else None
        if guard and os.getppid() == first:  # so it is the one that the guard has opened
            guard.run()
    except OSError:  # the first process is gone, or the kernel refuses what this needs
        return os.EX_OSERR
    finally:
        if record:
            record.close()
    return 0


class DaemonGuard:
    """Guards the process ``first`` and the daemons below it, and lists their session folders in ``record``."""

    def __init__(self, first: int, record: JobRecord | None) -> None:
        from poprun_py.linux import processes

        self._processes, self._record, self._first = processes, record, first
        self._known = {first: os.pidfd_open(first)}  # the first and the daemons; a pid may be in use again, no pidfd
        parent = max(processes.parent(first), 0)
        self._timeout = ORPHAN_TIMEOUT if parent == _INIT else _START_TIMEOUT
        self._session = os.pidfd_open(parent or os.getpid())  # a container may hide it
        self._has_started = False  # any supervisor, which looks after the daemon from then on

    def run(self) -> None:
        """Return once the daemon is gone."""
        interval, limit = _SHORTEST, time.monotonic() + self._timeout
        while self.look():
            is_over = self._wait(interval) or time.monotonic() > limit
            if is_over and not self._has_started:
                self.end()
            interval = min(1.5 * interval, _LONGEST)

    def look(self) -> bool:
        """Update the daemons and what they have started; return whether there is any process to guard."""
        roots = self._living()
        family = {*roots, *(pid for root in roots for pid in self._processes.descendants(root))} - {os.getpid()}
        named = [pid for pid in family if self._processes.command(pid).startswith(_NAMES)]
        daemons = {pid for pid in named if pid in self._known or self._learn(pid)}
        self._list(daemons)
        others = family - daemons
        self._has_started = self._has_started or any(self._processes.parent(pid) in daemons for pid in others)
        return bool(roots)

    def _learn(self, pid: int) -> bool:
        """Open a pidfd of a daemon; return False if it is gone, or its pid belongs to an unrelated process."""
        try:
            process = os.pidfd_open(pid)
        except OSError:  # it is gone
            return False
        ancestor, is_daemon = self._processes.parent(pid), self._processes.command(pid).startswith(_NAMES)
        while ancestor > 0 and ancestor not in self._known:
            ancestor = self._processes.parent(ancestor)
        # a process that is still alive had its pid when the parents were read
        if is_daemon and ancestor > 0 and not _has_ended(self._known[ancestor]) and not _has_ended(process):
            self._known[pid] = process
            return True
        os.close(process)
        return False

    def _list(self, daemons: set[int]) -> None:
        if self._record:
            from poprun_py.linux.mpi_files import folders_here
            from poprun_py.linux.session_folders import folders_of

            self._record.add(path for pid in sorted(daemons) for path in folders_of(pid, folders_here()))

    def _living(self) -> list[int]:
        return [pid for pid, process in self._known.items() if not _has_ended(process)]

    def _wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end of any guarded process; return whether the session is over."""
        watched = [self._known[pid] for pid in self._living()]
        select.select([*watched, *([] if self._has_started else [self._session])], [], [], seconds)
        return _has_ended(self._session)

    def end(self) -> None:
        """End the daemons, unless they turn out to have started something."""
        for number, seconds in _ENDING:
            for pid in self._living():
                if self._processes.command(pid).startswith(_NAMES):
                    self._send(pid, number)
            limit = time.monotonic() + seconds
            while time.monotonic() < limit:
                if not self.look() or self._has_started:
                    return
                time.sleep(_SHORTEST)

    def _send(self, pid: int, number: int) -> None:
        try:
            signal.pidfd_send_signal(self._known[pid], number)
        except ProcessLookupError:
            return


def _first() -> int:
    """The pid of the first process, which is our parent; 0 if it ended before, so that we were adopted.

    The process that adopts orphans (init, the systemd of the user, a container's shell) is in another session, and
    its other descendants do not belong to the job.
    """
    parent = os.getppid()
    try:
        is_first = parent != _INIT and os.getsid(parent) == os.getsid(0)
    except OSError:
        return 0
    return parent if is_first else 0


def _has_ended(process: int) -> bool:
    """Whether the process of a pidfd has ended."""
    return bool(select.select([process], [], [], 0)[0])


if __name__ == "__main__":
    os._exit(main())
