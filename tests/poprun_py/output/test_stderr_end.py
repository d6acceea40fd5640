"""StderrEnd: exceptions, those that only report another rank, and MPI_Abort, at the end of a program's stderr."""

from __future__ import annotations

import pytest

from gcl.errors import PeerLost
from poprun_py.output.stderr_end import StderrEnd, last_line, ranks_that_missed_a_peer, read_stderr_end

TRACEBACK = b"""Traceback (most recent call last):
  File "train.py", line 7, in <module>
    step()
"""
ABORT = b"Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1\n"


def test_an_exception_is_the_cause_of_an_end():
    assert read_stderr_end(TRACEBACK + b"ValueError: bad batch\n") == StderrEnd(raised=True)


def test_the_exception_of_gcl_for_a_lost_peer_is_not():
    error = PeerLost.left("all_reduce(add, 4 x float32)", "replica 6 (rank 3)", "it raised")
    text = f"{PeerLost.__module__}.{PeerLost.__name__}: {error}\n"
    assert read_stderr_end(TRACEBACK + text.encode()) == StderrEnd(raised=True, follows=True, peer=3)


@pytest.mark.parametrize(("given", "code"), [(b"7", 7), (b"-1", 255), (b"256", 0)])
def test_mpi_abort_is_known_by_the_words_of_mpich(given, code):
    assert read_stderr_end(ABORT.replace(b" 7)", b" " + given + b")")).aborted == code


def test_errors_of_mpi_itself_are_no_abort_of_the_program():
    failed = b"Abort(807528207): Fatal error in internal_Finalize: Other MPI error, error stack:\n"
    assert read_stderr_end(ABORT + failed).aborted == 7
    assert read_stderr_end(failed).aborted is None


def test_nothing_is_known_of_other_words():
    assert read_stderr_end(b"") == read_stderr_end(b"Warning: slow\n") == StderrEnd()


def test_the_last_line_is_the_last_with_content():
    assert last_line(b"a\n  cannot open x \n\n") == "cannot open x"
    assert last_line(b"") == ""
    assert len(last_line(b"x" * 1000)) == 200


#: Messages of Open MPI 5 if the connection to a peer is closed, and if a program makes a mistake.
FATAL = """[h0:00000] *** An error occurred in {}
[h0:00000] *** reported by process [3804364801,{}]
[h0:00000] *** on {}
"""


def test_ranks_that_end_since_a_peer_has_are_known_by_the_words_of_open_mpi():
    missed = FATAL.format("Socket closed", 1, "a NULL communicator") + FATAL.format("Socket closed", 12, "a NULL")
    mistaken = FATAL.format("MPI_Recv", 2, "communicator MPI_COMM_WORLD")
    assert ranks_that_missed_a_peer((mistaken + missed).encode()) == {1, 12}
    assert ranks_that_missed_a_peer(b"") == set()
