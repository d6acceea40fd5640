"""Misuse of communicators and tensors: an error, not a wrong sum or an endless wait."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np
import pytest

from gcl import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    Communicator,
    GclError,
    connect,
    connect_threads,
)
from tests.gcl.helpers.threads import errors_of


@pytest.fixture
def alone() -> Communicator:
    return connect(local_replicas=2, segment_bytes=1 << 24)


def test_a_call_after_close_raises(alone: Communicator) -> None:
    x = alone.empty(4)
    alone.all_reduce_async(x, out=x).wait()
    alone.close()
    for _ in range(2):
        with pytest.raises(GclError, match="the communicator is closed"):
            alone.all_reduce_async(x, out=x).wait(250)
        with pytest.raises(GclError, match="the communicator is closed"):
            alone.all_reduce(x, out=x)


def test_no_time_to_wait_only_looks() -> None:
    first, late = connect_threads((1, 1), segment_bytes=1 << 20)
    handle = first.all_reduce_async(np.ones((1, 4), np.float32))
    with pytest.raises(CollectiveTimeout, match="not complete after 0 s; wait again"):
        handle.wait(0)
    late.all_reduce(np.ones((1, 4), np.float32))
    assert handle.wait(250) is handle.wait(timeout=0)


@pytest.mark.parametrize("after", [0.0, 0.001, 0.004])
def test_closed_while_a_collective_is_under_way(after: float) -> None:
    alone = connect(local_replicas=4)
    x = alone.empty(1_000_000)
    alone.all_reduce(x, out=x)
    handle = alone.all_reduce_async(x, out=x)
    time.sleep(after)
    alone.close()
    with contextlib.suppress(GclError):  # it was complete, or raises because the communicator is closed
        assert handle.wait(250) is x


def test_a_call_after_a_refused_one_is_not_mistaken_for_it() -> None:
    """Rank 1 is in its second call before rank 0 looks for it: the two tensors must not be added."""

    def work(communicator: Communicator) -> Any:
        for value in (1, 100):
            if communicator.global_offset == 0:
                time.sleep(0.3)
            x = np.full((1, 4), value, np.float32)
            try:
                communicator.all_reduce(x.astype(np.int16) if communicator.global_offset and value == 1 else x)
            except ArgumentError:
                assert communicator.global_offset == 1

    errors = errors_of((1, 1), work)
    assert isinstance(errors[0], CollectiveMismatch)
    assert "after a call that was refused (a tensor of int16 is not supported" in str(errors[0])


@pytest.mark.parametrize("op", [["add"], {}, np.array(0)])
def test_invalid_operators_are_refused(op: Any, alone: Communicator) -> None:
    x = alone.empty(4)
    with pytest.raises(ArgumentError):
        alone.all_reduce(x, op, out=x)
    with pytest.raises(ArgumentError):
        alone.broadcast(x, op, out=x)


def test_a_shard_at_another_offset_of_the_shared_tensor_is_refused() -> None:
    alone = connect(local_replicas=1, segment_bytes=1 << 24)
    shared = alone.shared((1, 8))
    assert alone.all_gather(shared[:1], out=shared) is shared
    overlapping = shared.reshape(-1)[4:].reshape(1, 4)
    with pytest.raises(ArgumentError):
        alone.all_gather(overlapping, out=shared)


def test_long_lists_keep_the_line_that_called() -> None:
    def work(communicator: Communicator) -> Any:
        return communicator.all_reduce(
            [np.ones((1, 100 + i), np.float32) for i in range(200 - communicator.global_offset)]
        )

    for error in errors_of((1, 1), work):
        assert isinstance(error, CollectiveMismatch)
        assert str(error).count("test_misuse.py:") == 2


def test_tensors_that_changed_are_looked_at_again(alone: Communicator) -> None:
    x, y = np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32)
    for _ in range(2):
        alone.all_reduce(x, out=x)
        alone.all_reduce(x, out=y)
    x.flags.writeable = y.flags.writeable = False
    for out in (x, y):
        with pytest.raises(ArgumentError, match="read-only"):
            alone.all_reduce(x, out=out)
