"""Refusals: if one rank's call has invalid arguments, the others raise with the reason before their time-out."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from gcl import ArgumentError, CollectiveMismatch, Communicator
from tests.gcl.helpers.threads import errors_of, on_threads
from tests.helpers.mpi_jobs import PROGRAMS, run_job


def wrong(communicator: Communicator) -> object:
    return communicator.all_reduce(np.zeros((communicator.local_replicas + 3, 4), np.float32))


def right(communicator: Communicator) -> float:
    x = np.ones((communicator.local_replicas, 4), np.float32)
    return float(communicator.all_reduce(x)[0, 0])


def test_ranks_that_wait_learn_which_rank_was_refused_and_why() -> None:
    def work(communicator: Communicator) -> None:
        right(communicator)
        started = time.monotonic()
        try:
            wrong(communicator) if communicator.global_offset == 1 else right(communicator)
        finally:
            assert time.monotonic() - started < 100  # the time-out is 200 s

    errors = errors_of((1, 2, 1), work)
    assert isinstance(errors[1], ArgumentError)
    told = [str(errors[0]), str(errors[2])]
    reason = f"for replicas 1 to 2 (rank 1), whose call was refused: {errors[1]}"
    assert any(isinstance(errors[rank], CollectiveMismatch) for rank in (0, 2))
    assert all("replicas 1 to 2 (rank 1), whose call was refused: " in text for text in told)
    assert any(text == f"all_reduce(add, 4 x float32) waits {reason}" for text in told)


def test_the_refusal_is_named_where_a_rank_leaves_after_it() -> None:
    def work(communicator: Communicator) -> None:
        if communicator.global_offset == 1:
            with communicator:
                wrong(communicator)
        time.sleep(0.2)
        right(communicator)

    first, second = errors_of((1, 1), work)
    assert isinstance(second, ArgumentError)
    assert (
        str(first) == f"all_reduce(add, 4 x float32) waits for replica 1 (rank 1), whose call was refused: {second}"
    )


def test_a_call_that_all_ranks_were_refused_breaks_nothing() -> None:
    """Also if one rank is late, and the others wait for it after their own refusals."""

    def work(communicator: Communicator) -> list[float]:
        sums = []
        for _ in range(3):
            with pytest.raises(ArgumentError):
                wrong(communicator)
            if communicator.global_offset == 1:
                time.sleep(0.4)
            sums.append(right(communicator))
        return sums

    assert on_threads((1, 1, 1), work) == [[3.0] * 3] * 3


def test_an_unknown_method_on_one_rank_is_reported_to_the_others() -> None:
    def work(communicator: Communicator) -> object:
        x = np.zeros((1, 4), np.float32)
        return communicator.all_reduce(x, method="ring" if communicator.global_offset else "clockwise_ring")

    first, second = errors_of((1, 1), work)
    assert isinstance(second, ArgumentError)
    assert "replica 1 (rank 1), whose call was refused: method 'ring' is unknown" in str(first)


PROGRAM = PROGRAMS / "gcl/core/refusals.py"

#: (host of each rank, transport, rank that refuses): cases of the same ranks, one communicator each, in one job.
CASES: dict[str, list[tuple[str, str, int]]] = {
    "one host, three hosts, a neighbour or a lone rank refuses, mpi": [
        ("aaa", "auto", 1),
        ("abc", "auto", 2),
        ("aab", "auto", 1),
        ("aab", "auto", 2),
        ("aaa", "mpi", 1),
    ],
    "two hosts of two": [("aabb", "auto", 3)],
}


@pytest.mark.parametrize("cases", CASES.values(), ids=CASES)
def test_refusals_reach_processes_over_every_transport(cases: list[tuple[str, str, int]], tmp_path: Path) -> None:
    ranks = len(cases[0][0])
    ended = run_job(PROGRAM, tmp_path, json.dumps(cases), counts=(1,) * ranks)
    refused = "the tensor has shape [2, 4]; its leading axis must be the 1 local replicas"
    for rank, out in enumerate(ended.out):
        for case, ((*alike, last), seconds) in zip(cases, json.loads(out), strict=True):
            assert [error.split(": ")[0] for error in alike[::3]] == ["ArgumentError"] * 3, case
            assert alike[1::3] == alike[2::3] == [float(ranks)] * 3, case
            assert seconds < 100, "the time-out is 200 s"
            assert refused in last, case
            if rank != case[2]:
                assert f"replica {case[2]} (rank {case[2]}), wh" in last, case
