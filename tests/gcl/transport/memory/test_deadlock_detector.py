"""Deadlock detection: calls of two communicators in crossed order raise, unless another thread could help."""

import json
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

import pytest

from gcl.transport.memory import inprocess
from gcl.transport.memory.deadlock_detector import WaitStatus
from gcl.transport.rendezvous.process_liveness import Process
from tests.helpers.mpi_jobs import PROGRAMS, run_job


class _Communicator:
    """The part of a communicator that a WaitStatus uses."""

    def fail(self, error: BaseException) -> None:
        """Ignore the error."""


def _status(owner: _Communicator, communicators: WeakSet[WaitStatus], processes: tuple[Process, ...]) -> WaitStatus:
    domain = replace(inprocess.domains(segment_bytes=4096)[0], communicators=communicators, processes=processes)
    return WaitStatus(domain, str, owner.fail)


def test_communicators_see_all_others_of_the_same_set() -> None:
    owner, here, elsewhere = _Communicator(), WeakSet[WaitStatus](), WeakSet[WaitStatus]()
    pair, other = (Process(1, 1), Process(2, 1)), (Process(1, 1), Process(3, 1))
    first, second = _status(owner, here, pair), _status(owner, here, pair)
    others = [_status(owner, here, other), _status(owner, elsewhere, pair)]
    assert set(first.siblings()) == {first, second}
    assert [status.siblings() for status in others] == [[status] for status in others]
    del second
    assert first.siblings() == [first]


@pytest.mark.parametrize("counts", [(1, 1), (2, 1, 1)], ids=str)
def test_crossed_calls_are_the_same_error_on_every_rank(counts: tuple[int, ...], tmp_path: Path) -> None:
    """Calls that the program makes itself, and calls that a Runner's thread makes for it."""
    program = PROGRAMS / "gcl/transport/crossed_calls.py"
    ended = run_job(program, tmp_path, counts=counts).succeeded()
    ranks = [json.loads(out) for out in ended.out]
    assert all(fine == "no error" and waited < 100 for _, waited, fine in ranks), "the time-out is 200 s"
    for way in range(2):
        said = [texts[way] for texts, _, _ in ranks]
        assert len({error for errors in said for error in errors}) == 1, said
        line = f"{program}:" + said[0][0].partition(f"{program.name}:")[2].partition(",")[0]
        first, second = ("replica 0", "replica 1") if counts[0] == 1 else ("replicas 0 to 1", "replica 2")
        assert said[0][0] == (
            f"CollectiveMismatch: {first} (rank 0) called all_reduce(add, 4 x float32) at {line}, "
            f"but {second} (rank 1) called all_reduce(add, 5 x float32) at {line} of another "
            "communicator, and they wait for each other; every rank must call its communicators in the same order"
        )


def test_two_communicators_in_two_threads_may_wait_for_each_other_s_threads(tmp_path: Path) -> None:
    """For 3 s each rank waits for a call that another thread of its peer makes late."""
    program = PROGRAMS / "gcl/transport/threads_of_each_other.py"
    assert run_job(program, tmp_path).succeeded().out == ["fine\n"] * 2
