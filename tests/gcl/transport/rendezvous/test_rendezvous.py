"""Rendezvous: a rank that waits yields its core, unless other programs then keep the core for long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from gcl.transport.rendezvous import rank_table
from gcl.transport.rendezvous.rank_table import Table
from gcl.transport.rendezvous.rendezvous import LINE, Waits, new_waits

ASLEEP, NEXT_ASLEEP = Table.WAITS + Waits.ASLEEP, Table.WAITS + Waits.NEXT_ASLEEP


@pytest.fixture
def rank() -> Iterator[np.ndarray]:
    """The rank table of one of three ranks on two cores, the only one that has arrived."""
    control = np.zeros(3 * LINE, np.uint8)
    table = rank_table.new_rank_table(
        rank=0,
        control=control.ctypes.data,
        arenas=[0, 0, 0],
        owners=[0, 1, 2],
        groups=[[0, 1, 2]],
        waits=new_waits(3, 2, across_hosts=False),
        chunk=0,
        sets=0,
    )
    rank_table.meet_again(table)
    yield table
    assert not control[LINE:].view(np.int32)[1]  # no rank is counted as asleep


@pytest.fixture
def busy_core() -> Iterator[None]:
    """A core, the only one of this thread, on which another program computes."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    ready = "print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", ready], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            yield
        finally:
            busy.kill()
            os.sched_setaffinity(0, before)


def waits_without_yields(rank: np.ndarray) -> int:
    """The number of waits that sleep at once after a yield that took long; the kernel may give the core back at once
    a few times, while the other program has had more than its share."""
    for _ in range(50):
        assert not rank_table.met(rank)
        if rank[ASLEEP]:
            break
    return int(rank[ASLEEP])


@pytest.mark.usefixtures("busy_core")
def test_after_a_yield_that_took_long_the_next_waits_sleep_without_yielding(rank: np.ndarray) -> None:
    asleep = waits_without_yields(rank)
    assert asleep > 0
    assert not rank_table.met(rank)
    assert rank[ASLEEP] == asleep - 1


@pytest.mark.usefixtures("busy_core")
def test_long_yields_become_rare(rank: np.ndarray) -> None:
    counts = []
    for _ in range(3):
        counts.append(waits_without_yields(rank))
        rank[ASLEEP] = 0
    assert counts == [counts[0], 2 * counts[0], 4 * counts[0]]
    assert counts[0] > 0
    rank[NEXT_ASLEEP] = most = 1 << 12
    assert waits_without_yields(rank) == rank[NEXT_ASLEEP] == most
