"""Supervisor socket: the socket on which a process of an instance sends notices to the instance's supervisor.

notice                     sent
-------------------------  -----------------------------------------------------------------------------------------
progress STEP SAMPLES LOSS  by ``report``, for the live view of a job
lost RANK                   when this process learns that a peer is gone (-1: its rank is not known)
left RANK                   the same, if the peer has left by itself, and said so
raised CODE                 when an uncaught exception ends this process, before its peers can notice that
exiting CODE                the same for ``sys.exit``, unless the program catches SystemExit

The launcher blames no instance that had lost a peer before it ended. It does not read that from what programs print.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from popdist_py.environment import REPORT_SOCKET

if TYPE_CHECKING:
    import socket

#: Seconds that a notice which must arrive waits for the supervisor to read earlier ones.
_PATIENCE = 1.0


class SupervisorSocket:
    """The inherited socket, if there is a supervisor; nothing is raised if notices are lost."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._socket = _inherited(environ.get(REPORT_SOCKET, ""))

    @property
    def is_open(self) -> bool:
        """Whether there is a supervisor that may read notices."""
        return self._socket is not None

    def send(self, notice: str, *, patience: float = 0.0) -> None:
        """Send ``notice``, unless the supervisor reads none for ``patience`` seconds."""
        if self._socket is None:
            return
        try:
            self._socket.settimeout(patience)
            self._socket.send(notice.encode())
        except (BlockingIOError, TimeoutError):
            return  # earlier notices have not been read yet
        except OSError:
            self._socket = None


def _inherited(text: str) -> socket.socket | None:
    """The socket ``descriptor:inode``, unless the descriptor is something else in this process."""
    try:
        descriptor, inode = map(int, text.split(":"))
        if os.fstat(descriptor).st_ino != inode:
            return None
        import socket  # slow to import, and only needed under a launcher

        return socket.socket(fileno=os.dup(descriptor))
    except (ValueError, OSError):
        return None


@cache
def supervisor_socket() -> SupervisorSocket:
    """The socket of this process: opened by the first notice, since the process may have inherited none.

    One per process, as the inherited socket is, and because notices are sent without a handle.
    """
    return SupervisorSocket(os.environ)


def notify(notice: str) -> None:
    """Send a notice that must arrive before anything else that this process does becomes known."""
    supervisor_socket().send(notice, patience=_PATIENCE)
