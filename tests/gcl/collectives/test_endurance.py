"""Endurance: thousands of random collectives in a row, and ranks killed at random moments, between processes.

Two thousand collectives and four kills; with --full ten thousand and twenty.
"""

import json
import os
import random
import time
from pathlib import Path

import pytest

from tests.helpers.mpi_jobs import run_job

#: What MPI, torch and Python keep in /dev/shm for jobs that run at the same time as a test.
FOREIGN = ("mpich_", "sm_segment", "osc_", "psm_", "sem.", "torch_")
GROUPS = ("all(4)", "consecutive(4, 2)", "orthogonal(4, 2)", "none(4)")


def in_shm() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if not name.startswith(FOREIGN)}


def assert_nothing_new(before: set[str]) -> None:
    """What other jobs have there now goes with them."""
    new, end = in_shm() - before, time.monotonic() + 60
    while new & in_shm() and time.monotonic() < end:
        time.sleep(0.1)
    assert not new & in_shm()


@pytest.mark.timeout(420)
def test_thousands_of_random_collectives_leave_nothing_behind(full: bool, tmp_path: Path) -> None:
    """Random operation, operator, size, dtype and group at P = 4; every result checked, memory flat."""
    program = """
    import gc, os, sys, time
    from pathlib import Path
    import gcl
    from tests.gcl.helpers.checks import check_random
    from tests.gcl.helpers.instance import connect

    def resident():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    calls = int(sys.argv[1])
    communicators = [connect(group=eval(f"gcl.Group.{name}")) for name in sys.argv[2:]]
    for seed in range(calls):
        if seed in (calls // 5, calls * 3 // 5):
            print(resident())
        check_random(communicators[seed * 7919 // 13 % 4], seed)
    print(resident())
    """
    before = in_shm()
    ended = run_job(
        program, tmp_path, 10_000 if full else 2_000, *GROUPS, counts=(1, 1, 1, 1), timeout=400
    ).succeeded()
    for said in ended.out:
        warm, middle, last = map(int, said.split())
        assert last - middle < 8 << 20, "resident bytes"
        assert last - warm < 16 << 20, "resident bytes"
    assert_nothing_new(before)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 20))])
def test_a_rank_killed_at_a_random_moment(seed: int, tmp_path: Path) -> None:
    """The others hear of it within 2 s, whatever they were doing, and nothing is left."""
    program = """
    import json, os, signal, sys, threading, time
    from pathlib import Path
    import gcl, popdist_py
    from tests.gcl.helpers.checks import check_random
    from tests.gcl.helpers.instance import connect

    victim, delay, moment = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    communicators = [connect(group=eval(f"gcl.Group.{name}")) for name in sys.argv[4:]]
    for seed in range(20):
        check_random(communicators[seed % 2], seed)

    def kill():
        time.sleep(delay)
        moment.write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)

    if popdist_py.getInstanceIndex() == victim:
        threading.Thread(target=kill).start()
    seed = 20
    try:
        while True:
            check_random(communicators[seed % 2], seed)
            seed += 1
    except gcl.PeerLost as error:
        print(json.dumps([time.time(), str(error)]), flush=True)
    os._exit(0)  # MPI would wait for the one that is gone
    """
    chance, before = random.Random(seed), in_shm()
    victim, waited, attempts = chance.randrange(3), [100.0], 0
    while max(waited) >= 2 and attempts < 3:  # the machine may stand still for that long, but not every time
        delay, moment = chance.uniform(0, 0.2), tmp_path / f"moment{attempts}"
        ended = run_job(program, tmp_path, victim, delay, moment, "all(3)", "none(3)", counts=(1,) * 3)
        assert ended.out.pop(victim) == ""
        heard = [json.loads(said) for said in ended.out]
        assert all(f"waits for replica {victim} (rank {victim}), whose process has died" in why for _, why in heard)
        waited = [at - float(moment.read_text()) for at, _ in heard]
        attempts += 1
    assert max(waited) < 2
    assert_nothing_new(before)
