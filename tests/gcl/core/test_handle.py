"""Handles: results and errors of collectives that a thread runs in the order in which they were begun."""

from __future__ import annotations

import gc
import weakref
from threading import Event, current_thread

import pytest

import gcl
from gcl.core.handle import Runner


def test_collectives_run_in_their_order_in_one_thread() -> None:
    runner, calls = Runner(), []
    handles = [runner.begin(lambda number=number: calls.append((number, current_thread()))) for number in range(5)]
    handles[-1].wait(10)
    assert calls == [(number, runner.thread) for number in range(5)]
    assert all(handle.done for handle in handles)
    runner.stop()
    runner.thread.join(10)
    assert not runner.thread.is_alive()


def test_an_error_is_raised_by_every_wait_and_later_work_continues() -> None:
    runner = Runner()
    failing, next_one = runner.begin(lambda: 1 / 0), runner.begin(lambda: 7)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing.wait()
    assert next_one.wait() == 7


def test_a_wait_that_was_too_short_may_be_repeated() -> None:
    runner, go = Runner(), Event()
    handle = runner.begin(lambda: go.wait(10))
    for seconds in (0, 0.01):
        with pytest.raises(gcl.CollectiveTimeout, match=f"not complete after {seconds:g} s"):
            handle.wait(seconds)
    assert not handle.done
    go.set()
    assert handle.wait(10)
    runner.drain()


def test_drain_waits_for_all_but_not_within_a_collective() -> None:
    runner, calls = Runner(), []
    for number in range(100):
        runner.begin(lambda number=number: calls.append(number))
    runner.drain()
    assert len(calls) == 100
    runner.begin(runner.drain).wait(10)  # it would wait for itself


def test_an_unreferenced_runner_ends_and_keeps_nothing_alive() -> None:
    class Tensor:
        pass

    runner, tensor = Runner(), Tensor()
    reference, thread = weakref.ref(tensor), runner.thread
    runner.begin(lambda tensor=tensor: None).wait(10)
    del tensor
    runner.begin(lambda: None).wait(10)
    gc.collect()
    assert reference() is None
    del runner
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
