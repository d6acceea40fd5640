"""Long random sequences of collectives: results against the reference, and memory that does not grow."""

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gcl import Communicator, Group, connect_threads
from tests.gcl.helpers.checks import BORDERS, check_random
from tests.gcl.helpers.threads import on_ranks
from tests.helpers.mpi_jobs import PROGRAMS, run_job


@pytest.mark.parametrize("group", [Group.all(6), Group.orthogonal(6, 2)], ids=str)
@pytest.mark.parametrize("counts", [(1, 2, 1, 2), (6,)], ids=str)
def test_any_sequence_gives_the_results_of_the_reference(counts: tuple[int, ...], group: Group) -> None:
    def work(communicator: Communicator) -> None:
        for seed in range(250):
            check_random(communicator, seed)

    on_ranks(connect_threads(counts, group=group, timeout=250, segment_bytes=1 << 28), work)


def test_any_sequence_between_processes(tmp_path: Path) -> None:
    program = PROGRAMS / "gcl/collectives/random_sequences.py"
    assert run_job(program, tmp_path, counts=(2, 1, 3)).succeeded().out == ["fine\n"] * 3


def used_by(steps: Callable[[], object]) -> tuple[int, int]:
    """The objects and bytes by which this process grows from one run of ``steps`` to the next."""

    def used() -> tuple[int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return len(gc.get_objects()), pages * os.sysconf("SC_PAGE_SIZE")

    steps()
    before = used()
    steps()
    after = used()
    return after[0] - before[0], after[1] - before[1]


def test_memory_is_flat_over_thousands_of_collectives() -> None:
    """Tensors of recurring sizes are created and deleted."""
    communicators = connect_threads((1, 2), timeout=250, segment_bytes=1 << 28)

    def work(communicator: Communicator) -> None:
        random = np.random.default_rng(1)
        tensors = [communicator.empty(size) for size in (10, 5000)]
        for step in range(500):
            n = int(random.choice(BORDERS))
            x = communicator.empty(n) if step % 3 else np.zeros((communicator.local_replicas, n), np.float32)
            communicator.all_reduce(x, "max", out=x if step % 2 else None)
            communicator.all_gather(communicator.reduce_scatter(x))
            communicator.broadcast(tensors[step % 2], out=tensors[step % 2])

    objects, nbytes = used_by(lambda: on_ranks(communicators, work))
    assert objects < 100
    assert nbytes < 20_000_000


def test_communicators_that_are_dropped_leave_no_resources() -> None:
    def once() -> None:
        def work(communicator: Communicator) -> None:
            with communicator:
                communicator.all_reduce_async(communicator.empty(100_000)).wait()

        on_ranks(connect_threads((1, 1), timeout=250, segment_bytes=1 << 28), work)

    def many() -> None:
        for _ in range(40):
            once()

    threads = threading.active_count()
    objects, nbytes = used_by(many)
    assert threading.active_count() < threads + 5
    assert objects < 500  # an exit hook each, for communicators of processes
    assert nbytes < 20_000_000
    assert Path("/proc/self/maps").read_text().count("/dev/zero") < 40, (
        "shared mappings of communicators that are gone"
    )
