"""StderrEnd: the last lines of an instance's stderr, and the reason why it ended, as far as they show it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from poprun_py.output.uncaught_exception import find_uncaught

__all__ = ["StderrEnd", "last_line", "ranks_that_missed_a_peer", "read_stderr_end"]

#: What MPICH writes to the stderr of the process that calls MPI_Abort.
_ABORT = rb"application called MPI_Abort\([^\n]*, (-?\d+)\)"

#: The error of a rank whose peer has ended or left (gcl.errors), with the rank of that peer.
_PEER_LOST = r"(?:[\w.]+\.)?PeerLost\b"
_RANK = r"\brank (\d+)\b"

#: What Open MPI's daemons say of a rank that ends since the connection to a peer is closed.
_MISSED_PEER = rb"An error occurred in Socket closed\n.*reported by process \[\d+,(\d+)\]"

_LONGEST = 200


@dataclass(frozen=True)
class StderrEnd:
    """``raised``: an exception that nobody caught; ``follows``: it only reports that a peer has ended or left.

    ``peer`` is the rank of that peer, if it is named. ``aborted`` is the code given to MPI_Abort.
    """

    raised: bool = False
    follows: bool = False
    peer: int | None = None
    aborted: int | None = None


def read_stderr_end(stderr: bytes) -> StderrEnd:
    """Read the end of an instance's stderr."""
    if not stderr:
        return StderrEnd()
    uncaught = find_uncaught(stderr)
    aborts = re.findall(_ABORT, stderr)
    code = int(aborts[-1]) & 0xFF if aborts else None
    if uncaught is None:
        return StderrEnd(aborted=code)
    lost = re.match(_PEER_LOST, uncaught.error)
    peer = re.search(_RANK, uncaught.error) if lost else None
    return StderrEnd(True, lost is not None, int(peer[1]) if peer else None, code)


def ranks_that_missed_a_peer(said: bytes) -> set[int]:
    """Return the ranks that ended because a peer had, by what mpirun has written."""
    return {int(rank) for rank in re.findall(_MISSED_PEER, said)}


def last_line(stderr: bytes) -> str:
    """Return the last line with content, shortened."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines()]
    text = next((line for line in reversed(lines) if line), "")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
