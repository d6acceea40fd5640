"""Stderr end: MPI_Abort, instances that missed a peer, and the last line."""

from __future__ import annotations

import pytest

from poprun_py.output.stderr_end import abort_code, last_line, ranks_that_missed_a_peer

ABORT = b"Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1\n"


@pytest.mark.parametrize(("text", "code"), [(b"7", 7), (b"-1", 255), (b"256", 0)])
def test_mpi_abort_is_known_by_the_words_of_mpich(text, code):
    assert abort_code(b"warning\n" + ABORT.replace(b" 7)", b" " + text + b")"), 1) == code


def test_errors_of_mpi_itself_are_no_abort_of_the_program():
    failed = b"Abort(807528207): Fatal error in internal_Finalize: Other MPI error, error stack:\n"
    assert abort_code(ABORT + failed, 1) == 7
    assert abort_code(failed, 1) is None


@pytest.mark.parametrize(
    "text", [b"", b"Warning: slow\n", b"application called MPI_Abort(MPI_COMM_WORLD, 7)", b"> " + ABORT]
)
def test_other_words_are_none(text):
    assert abort_code(text, 1) is None


def test_words_of_another_rank_are_none():
    assert abort_code(ABORT, 0) is None


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
