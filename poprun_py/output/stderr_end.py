"""Stderr end: what an MPI says of the end of an instance, and the last line of what the instance itself says."""

from __future__ import annotations

import re

#: What MPICH writes to the stderr of the process of a rank that calls MPI_Abort.
_ABORT = rb"(?m)^Abort\(-?\d+\) on node \d+ .*: application called MPI_Abort\(.*, (-?\d+)\) - process (\d+)$"

#: What Open MPI's daemons say of a rank that ends since the connection to a peer is closed.
_MISSED_PEER = rb"An error occurred in Socket closed\n.*reported by process \[\d+,(\d+)\]"

_LONGEST = 200


def abort_code(stderr: bytes, rank: int) -> int | None:
    """Return the exit code that ``rank`` has passed to MPI_Abort last, by its stderr; None if it has not."""
    codes = [int(code) & 0xFF for code, process in re.findall(_ABORT, stderr) if int(process) == rank]
    return codes[-1] if codes else None


def ranks_that_missed_a_peer(said: bytes) -> set[int]:
    """Return the ranks that ended because a peer had, by what mpirun has written."""
    return {int(rank) for rank in re.findall(_MISSED_PEER, said)}


def last_line(stderr: bytes) -> str:
    """Return the last line with content, shortened."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines()]
    text = next((line for line in reversed(lines) if line), "")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
