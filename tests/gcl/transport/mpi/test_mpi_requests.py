"""Waits for MPI requests: the time that they take from a program that computes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from gcl.core.prepared_call import WAITING
from gcl.core.request import begun_here, in_background
from gcl.transport.mpi.mpi_requests import Library, Pace, new_work, wait

_TEST_ALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 3)


@pytest.mark.parametrize(
    ("pace", "most"),
    [(Pace.of(1 << 30, background=True), 530), (Pace(0, 1_000_000), 130)],
    ids=["background", "1 ms"],
)
def test_a_wait_polls_at_its_pace(pace: Pace, most: int) -> None:
    """In 100 ms 500 polls that are 200 us apart, and some before the first nap."""
    polls = 0

    def incomplete(count: int, requests: int, flag: int, statuses: int) -> int:
        nonlocal polls
        polls += 1
        return 0

    function = _TEST_ALL(incomplete)
    words = {Library.TEST_ALL: ctypes.cast(function, ctypes.c_void_p).value, Library.STATUS_BYTES: 24}
    addresses = np.array([words.get(word, 8) for word in Library], np.int64)
    requests, work = np.zeros(1, np.int64), new_work(addresses, 1, pace)
    assert wait(addresses, requests.ctypes.data, 1, work) == WAITING
    assert 0 < polls <= most


def test_begun_collectives_run_in_the_background() -> None:
    assert not in_background()
    assert begun_here(in_background)()
