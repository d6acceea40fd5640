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

__all__ = ["Witness", "start_witness"]

#: Signals that the supervisor's parent survives too; any other ends the witness as it ends the parent.
_SURVIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_DESCRIPTORS = 1024


def start_witness(channel: socket.socket) -> None:
    """Fork the witness, a child of the process in whose group it is to be; it ends when ``channel`` is closed."""
    try:
        if os.fork():
            return
    except OSError:  # then nobody answers
        return
    try:
        _answer(channel)
    finally:
        os._exit(0)


def _answer(channel: socket.socket) -> None:
    """Answer every byte until the other end is closed."""
    for number in _SURVIVED:
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, channel.fileno())
    os.closerange(channel.fileno() + 1, _DESCRIPTORS)
    while question := channel.recv(1):
        channel.send(question)


class Witness:
    """The supervisor's end of the ``channel`` to the witness."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.is_asked = False  # and has not answered

    def fileno(self) -> int:
        return self._channel.fileno()

    def ask(self) -> None:
        """Ask it whether it lives; the answer can be read once its descriptor is readable."""
        self.is_asked = True
        try:
            self._channel.send(b"?")
        except OSError:  # it is gone, as its end of the channel will tell
            return

    def has_answered(self) -> bool:
        """Take its answer: was it alive when it was asked? Nothing is asked any more."""
        self.is_asked = False
        try:
            return bool(self._channel.recv(1))
        except OSError:
            return False

    def end(self) -> None:
        """Let it end, unless an answer of its is still to come."""
        if not self.is_asked:
            self._channel.close()
