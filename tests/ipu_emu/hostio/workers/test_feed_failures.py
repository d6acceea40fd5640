"""Feed failures: every failure of a source or a worker is one clear error, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

from ipu_emu.errors import EmulatorError, FeedError
from ipu_emu.hostio import Feed
from tests.helpers.mpi_jobs import PROGRAMS

all_workers = pytest.mark.parametrize(
    ("workers", "processes"), [(0, None), (2, False), (2, True)], ids=["caller", "threads", "processes"]
)
ROWS = np.arange(40)


def failure(data: Any, **how: Any) -> tuple[int, str]:
    """The steps before the error, and the error."""
    feed = Feed(data, **how)
    with pytest.raises(FeedError) as error:
        list(feed)
    return feed.position, str(error.value)


def stumbles(sample: int) -> int:
    if sample == 17:
        raise ValueError("no picture")
    return sample


@all_workers
def test_a_preparation_that_raises(workers: int, processes: bool | None) -> None:
    count, text = failure(ROWS, micro_batch=5, prepare=stumbles, workers=workers, processes=processes)
    assert count == 3
    assert text.startswith(
        "Step 3 could not be prepared: sample 17 of epoch 0, ValueError: no picture (in stumbles, "
    )
    assert "test_feed_failures.py" in text


@all_workers
def test_a_generator_that_raises(workers: int, processes: bool | None) -> None:
    def source() -> Iterator[int]:
        yield from range(7)
        raise OSError("disk gone")

    count, text = failure(source, micro_batch=2, workers=workers, processes=processes)
    assert count == 3
    assert text.startswith("Step 3 could not be prepared: OSError: disk gone (in source, ")


@all_workers
def test_a_generator_that_ends_early(workers: int, processes: bool | None) -> None:
    how: Any = {"micro_batch": 2, "workers": workers, "processes": processes}
    assert failure(iter(range(7)), steps=5, **how) == (
        3,
        "The source ended after 3 of 5 steps; use fewer steps or more epochs",
    )
    with pytest.warns(UserWarning, match="The source ended after 1 of 2 samples of a step, which is left out"):
        assert len([*Feed(iter(range(7)), **how)]) == 3
    assert len([*Feed(iter(range(7)), steps=2, **how)]) == 2


@all_workers
def test_a_generator_can_be_read_once(workers: int, processes: bool | None) -> None:
    count, text = failure(iter(range(6)), micro_batch=2, epochs=2, workers=workers, processes=processes)
    assert count == 3
    assert "A generator can be read only once, but epoch 1 was requested" in text


@all_workers
@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (np.zeros(3, np.float32), "item 0 of a sample is float32[3]; the first sample's is float32[2]"),
        (np.zeros(2, np.int8), "item 0 of a sample is int8[2]; the first sample's is float32[2]"),
    ],
    ids=["shape", "type"],
)
def test_changed_shapes_and_types_are_refused(workers: int, processes: bool | None, odd: Any, text: str) -> None:
    data = [(np.zeros(2, np.float32), 1)] * 9 + [(odd, 1)] + [(np.zeros(2, np.float32), 1)] * 9
    for source in (data, lambda: iter(data)):
        count, message = failure(source, micro_batch=3, workers=workers, processes=processes)
        assert (count, text in message, "sample 9 of epoch 0" in message) == (3, True, True), message


@all_workers
def test_changed_structures_are_refused(workers: int, processes: bool | None) -> None:
    count, text = failure([{"x": 1}, {"x": 1}, {"y": 1}], workers=workers, processes=processes)
    assert count == 2
    assert "a sample is a dict of y; the samples before it were a dict of x" in text


@pytest.mark.parametrize("processes", [False, True])
def test_a_source_that_blocks_for_ever(processes: bool) -> None:
    def source() -> Iterator[int]:
        yield from range(3)
        time.sleep(600)

    count, text = failure(source, workers=2, processes=processes, timeout=2.0)
    assert count == 3
    assert re.match(r"No data for step 3 arrived within 2 s: worker .* has been preparing step 3 for \d+\.\d s", text)


def test_a_first_sample_that_never_arrives_is_reported() -> None:
    def source() -> Iterator[int]:
        time.sleep(600)
        yield 1

    with pytest.raises(FeedError, match=r"first sample.*source.*0\.3 s"):
        Feed(source, timeout=0.3)


def test_a_first_sample_that_fails() -> None:
    with pytest.raises(
        FeedError, match=r"The first sample failed in the preparation: ZeroDivisionError: .* \(in <lam"
    ):
        Feed(ROWS, prepare=lambda sample: 1 // 0)


def test_slow_workers_are_named() -> None:
    def slow(sample: int) -> int:
        if sample:
            time.sleep(1.5)
        return sample

    with pytest.warns(
        UserWarning, match=r"The session waits for data: worker 0 \(process \d+\) has been preparing st"
    ):
        assert [int(step) for step in Feed(ROWS[:2], prepare=slow, workers=1, slow=0.1)] == [0, 1]


def suicide(sample: int) -> int:
    if sample == 17:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def leaves(sample: int) -> int:
    if sample == 17:
        os._exit(3)
    return sample


@pytest.mark.parametrize(("function", "end"), [(suicide, "was killed by signal 9 (SIGKILL"), (leaves, "exit code 3")])
def test_workers_that_die_are_named(function: Any, end: str) -> None:
    count, text = failure(ROWS, prepare=function, workers=2, slow=60.0)
    assert count == 17
    assert text.startswith("worker ")
    assert "(process " in text
    assert end in text
    assert text.endswith("while it prepared step 17")


def test_a_worker_that_dies_between_two_steps() -> None:
    with Feed(ROWS, prepare=lambda sample: sample, workers=1, prefetch=1) as feed:
        next(feed)
        (child,) = psutil.Process().children()
        # Once the next step is ready, there is no free slot for another.
        while feed._prefetcher is None or not feed._prefetcher.ready:
            time.sleep(0.01)
        child.kill()
        with pytest.raises(FeedError, match=r"worker 0 \(process \d+\).*signal 9.*between two steps"):
            list(feed)


def used() -> tuple[int, int, list[str]]:
    """Descriptors, child processes and threads of feeds."""
    process = psutil.Process()
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("hostio")]
    return process.num_fds(), len(process.children()), threads


@all_workers
@pytest.mark.parametrize("end", ["used up", "closed", "forgotten", "failed"])
def test_nothing_is_left(workers: int, processes: bool | None, end: str) -> None:
    gc.collect()  # descriptors of earlier tests, which the feeds below must not be credited with
    before = used()
    for _ in range(3):
        feed = Feed(ROWS, prepare=stumbles if end == "failed" else abs, workers=workers, processes=processes)
        if end == "used up":
            list(feed)
        elif end == "failed":
            with pytest.raises(FeedError):
                list(feed)
        else:
            next(feed)
        if end == "closed":
            feed.close()
            with pytest.raises(StopIteration):
                next(feed)
        del feed
    assert used() == before


PROGRAM = PROGRAMS / "ipu_emu/interrupted_feed.py"


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, -signal.SIGKILL)])
def test_workers_end_with_the_program(signum: int, code: int) -> None:
    program = subprocess.Popen(
        [sys.executable, PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n"
    workers = psutil.Process(program.pid).children()
    assert len(workers) == 2
    if signum == signal.SIGINT:
        os.killpg(program.pid, signum)
    else:
        program.kill()
    _, errors = program.communicate(timeout=120)
    assert program.returncode == code
    assert errors.count("KeyboardInterrupt") == (1 if signum == signal.SIGINT else 0)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


@pytest.mark.parametrize("stream", [False, True])
def test_a_start_behind_the_end_is_reported(stream: bool) -> None:
    """A finished job may be resumed, with no data left."""
    data = np.arange(20)
    for epochs in (1, 2):
        source = (lambda: iter(data)) if stream else data
        assert list(Feed(source, micro_batch=4, epochs=epochs, start=5 * epochs)) == []
        with pytest.raises(FeedError, match=f"is after the end of the data, which has {5 * epochs} steps; start"):
            Feed(source, micro_batch=4, epochs=epochs, start=5 * epochs + 1)
    with pytest.raises(EmulatorError, match=r"start=6.*steps=3"):
        Feed(data, start=6, steps=3)
    with pytest.raises(EmulatorError, match=r"steps=0"):
        Feed(data, steps=0)
