"""Canary: a process in the process group of a supervisor's parent; if it survives, only the parent was killed.

Process managers send SIGKILL to the whole group of a process that they have started. If somebody else kills only the
parent, by its pid, the canary stays alive: if it still answers after the parent has ended, the MPI did not end the
parent. The kernel sends a signal to all processes of a group before any of them ends, and a process that was sent
SIGKILL executes no further instruction, so the answer does not depend on timing.
"""

from __future__ import annotations

import os
import signal
import socket

from poprun_py.linux import processes

#: Signals that the supervisor's parent also survives; any other ends both the canary and the parent.
_SURVIVED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def start_canary(channel: socket.socket) -> None:
    """Fork the canary, a child of the process whose group it joins; it ends when ``channel`` is closed."""
    try:
        if os.fork():
            return
    except OSError:  # there is no canary that could answer
        return
    try:
        _answer(channel)
    finally:
        os._exit(0)


def _answer(channel: socket.socket) -> None:
    """Answer every byte until the other end is closed."""
    for number in _SURVIVED:
        signal.signal(number, signal.SIG_IGN)
    processes.close_all_but(channel.fileno())
    while question := channel.recv(1):
        channel.send(question)


class Canary:
    """The supervisor's end of the ``channel`` to the canary."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.is_asked = False  # and has not answered

    def fileno(self) -> int:
        return self._channel.fileno()

    def ask(self) -> None:
        """Ask whether it is alive; the answer can be read once its descriptor is readable."""
        self.is_asked = True
        try:
            self._channel.send(b"?")
        except OSError:  # it has ended: its end of the channel will show that
            return

    def has_answered(self) -> bool:
        """Whether it was alive when it was asked, which it must not be again."""
        self.is_asked = False
        try:
            return bool(self._channel.recv(1))
        except OSError:
            return False

    def end(self) -> None:
        """Let it end, unless its answer is pending."""
        if not self.is_asked:
            self._channel.close()
