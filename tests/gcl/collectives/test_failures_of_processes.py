"""Failures of processes that die or make different calls: the errors of the others, and how soon they come.

Here the launcher keeps the survivors alive, so that they can report; poprun-py would end them. A job has a
communicator over shared memory and one over messages.
"""

import json
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import PROGRAMS, run_job

TRANSPORTS = ("shared_memory", "mpi")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("die", "whose process has died"),
        ("close", "which has left"),
        ("forget", "which has left"),
        ("exit", "which has left"),
        ("raise", "which has left"),
    ],
)
def test_a_peer_that_leaves_while_others_wait(how: str, why: str, tmp_path: Path) -> None:
    """Only shared memory sees the death of a process; over messages, the launcher must end the job."""
    program = PROGRAMS / "gcl/collectives/peer_goes.py"
    transports = TRANSPORTS[:1] if how == "die" else TRANSPORTS
    ended = run_job(program, tmp_path, how, *transports, counts=(1, 2))
    said = [json.loads(line) for line in ended.out[0].splitlines()]
    assert len(said) == len(transports), ended.err
    for error, waited, again in said:
        assert error.startswith(
            "PeerLost: all_reduce(add, 1000 x float32) waits for replicas 1 to 2 (rank 1), " + why
        )
        assert waited < 100, "the time-out is 200 s"
        assert again == error


def test_a_peer_that_leaves_after_its_part_breaks_nothing(tmp_path: Path) -> None:
    """Instance 0 still sends to instance 1, which is late, when instance 2 has what it wanted, and leaves."""
    program = PROGRAMS / "gcl/collectives/peer_goes_after_its_part.py"
    assert run_job(program, tmp_path, *TRANSPORTS, counts=(1, 1, 1)).succeeded().out == ["fine\n"] * 3


def test_a_mismatch_is_the_same_on_every_rank(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/collectives/mismatch.py"
    ended = run_job(program, tmp_path, *TRANSPORTS, counts=(1, 1, 1)).succeeded()
    assert ended.out[0] == ended.out[1] == ended.out[2]
    line = f"at {program}:13"
    for said in ended.out[0].splitlines():
        operator, again, size, collective = json.loads(said)
        assert operator == (
            f"CollectiveMismatch: replica 0 (rank 0) called all_reduce(add, 4 x float32) {line}, "
            f"but replica 2 (rank 2) called all_reduce(max, 4 x float32) {line}; "
            "every rank must make the same calls in the same order"
        )
        assert again == operator
        assert f"all_reduce(add, 4 x float32) {line}, but replica 1 (rank 1) called all_reduce(add, 5 x" in size
        assert f"all_reduce(add, 4 x float32) {line}, but replica 1 (rank 1) called barrier at" in collective


def test_ranks_that_never_arrive_are_named(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/collectives/never_arrive.py"
    ended = run_job(program, tmp_path, *TRANSPORTS, counts=(1, 2, 1, 1)).succeeded()
    for instance in (0, 2):
        for said in ended.out[instance].splitlines():
            assert said.startswith(
                "CollectiveTimeout: barrier waited 2 s for replicas 1 to 2 (rank 1), replica 4 (rank 3); "
            )
        assert len(ended.out[instance].splitlines()) == 2
