"""Endurance: thousands of random collectives in a row, and ranks killed at random moments, between processes.

A thousand collectives and four kills; with --full ten thousand and twenty.
"""

import json
import os
import random
import time
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import PROGRAMS, run_job

#: What MPI, torch and Python keep in /dev/shm for jobs that run at the same time as a test.
FOREIGN = ("mpich_", "sm_segment", "osc_", "psm_", "sem.", "torch_")
GROUPS = ("all(4)", "consecutive(4, 2)", "orthogonal(4, 2)", "none(4)")


def in_shm() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if not name.startswith(FOREIGN)}


def assert_nothing_new(before: set[str]) -> None:
    """Files of other jobs disappear when those jobs end."""
    new, end = in_shm() - before, time.monotonic() + 60
    while new & in_shm() and time.monotonic() < end:
        time.sleep(0.1)
    assert not new & in_shm()


@pytest.mark.timeout(420)
def test_many_random_collectives_leave_nothing_behind(full: bool, tmp_path: Path) -> None:
    """Random operation, operator, size, dtype and group at P = 4; every result checked, memory flat."""
    program = PROGRAMS / "gcl/collectives/endurance.py"
    before = in_shm()
    ended = run_job(
        program, tmp_path, 10_000 if full else 1_000, *GROUPS, counts=(1, 1, 1, 1), timeout=400
    ).succeeded()
    for said in ended.out:
        warm, middle, last = map(int, said.split())
        assert last - middle < 8 << 20, "resident bytes"
        assert last - warm < 16 << 20, "resident bytes"
    assert_nothing_new(before)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 20))])
def test_a_rank_killed_at_a_random_moment(seed: int, tmp_path: Path) -> None:
    """The others raise within 2 s, whatever they were doing, and nothing is left."""
    program = PROGRAMS / "gcl/collectives/random_kill.py"
    chance, before = random.Random(seed), in_shm()
    victim, waited, attempts = chance.randrange(3), [100.0], 0
    while max(waited) >= 2 and attempts < 3:  # the machine may stall for that long, but not every time
        delay, moment = chance.uniform(0, 0.2), tmp_path / f"moment{attempts}"
        ended = run_job(program, tmp_path, victim, delay, moment, "all(3)", "none(3)", counts=(1,) * 3)
        assert ended.out.pop(victim) == ""
        heard = [json.loads(said) for said in ended.out]
        assert all(f"waits for replica {victim} (rank {victim}), whose process has died" in why for _, why in heard)
        waited = [at - float(moment.read_text()) for at, _ in heard]
        attempts += 1
    assert max(waited) < 2
    assert_nothing_new(before)
