"""Witness: a process in the group of a supervisor's parent, which tells whether the MPI has ended that parent.

Process managers send SIGKILL to the whole group of a process that they have started. Whoever kills the parent alone,
by its pid, leaves the witness alive: if it still answers when the parent is gone, the MPI has not ended the parent.
The kernel sends a signal to all of a group before any of it is gone, and a process to which SIGKILL was sent never
again runs code of its own, so the answer does not depend on who is quicker.
"""

from __future__ import annotations

import os
import signal
import socket

from poprun_py.linux import processes

__all__ = ["Witness"]

#: Signals that the supervisor's parent survives too; any other ends the witness as it ends the parent.
_SURVIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_DESCRIPTORS = 1024


class Witness:
    """Make it while this process is in its parent's group. If no process can be started, it never answers."""

    def __init__(self) -> None:
        parent = os.getpid()
        self._socket, other = socket.socketpair()
        self._is_asked = False
        try:
            self._pid = os.fork()
        except OSError:
            self._pid = 0
        if self._pid == 0 and os.getpid() != parent:
            try:
                _answer(other, parent)
            finally:
                os._exit(0)
        other.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self) -> None:
        """Ask it whether it lives; the answer can be read once its descriptor is readable."""
        self._is_asked = True
        try:
            self._socket.send(b"?")
        except OSError:  # it is gone, as its end of the socket will tell
            return

    def has_answered(self) -> bool:
        """Take its answer: was it alive when it was asked? Nothing is asked any more."""
        self._is_asked = False
        try:
            return bool(self._socket.recv(1))
        except OSError:
            return False

    def collected(self, pid: int) -> None:
        """Take note that a child of this process has ended and was collected: it may have been the witness."""
        if pid == self._pid:
            self._pid = 0

    def end(self) -> None:
        """End it and collect it, unless an answer of its is still to come."""
        if self._pid and not self._is_asked:
            processes.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _answer(channel: socket.socket, parent: int) -> None:
    """Answer every byte until the other end is closed."""
    for number in _SURVIVED:
        signal.signal(number, signal.SIG_IGN)
    processes.die_with_parent(signal.SIGKILL, parent)
    os.closerange(0, channel.fileno())
    os.closerange(channel.fileno() + 1, _DESCRIPTORS)
    while question := channel.recv(1):
        channel.send(question)
