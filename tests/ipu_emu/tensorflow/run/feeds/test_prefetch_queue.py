"""Prefetch queues: how far ahead they take elements, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ipu_emu.tensorflow.run.feeds.prefetch_queue import ElementStream, PrefetchQueue, QueueClosed


def numbers(taken: list[int], count: int, error: BaseException | None = None) -> ElementStream:
    """Elements 0, 1, ..., listed in ``taken`` as soon as they are made."""

    def elements() -> Iterator[list[Any]]:
        for number in range(count):
            taken.append(number)
            yield [np.array(number)]
        if error is not None:
            raise error

    return elements


def settled(queue: PrefetchQueue, taken: list[int], count: int) -> bool:
    """Whether the thread of a queue has made ``count`` elements and stays there."""
    pause = threading.Event()
    for _ in range(200):
        if len(taken) >= count:
            break
        pause.wait(0.01)
    pause.wait(0.05)
    return len(taken) == count


def test_no_more_elements_are_taken_ahead_than_the_depth() -> None:
    taken: list[int] = []
    queue = PrefetchQueue(numbers(taken, 100), 3)
    assert settled(queue, taken, 4)  # the fourth waits for a free place
    assert [int(queue.next_arrays()[0]) for _ in range(2)] == [0, 1]
    assert settled(queue, taken, 6)
    queue.close()


def test_no_more_elements_are_taken_than_the_maximum() -> None:
    taken: list[int] = []
    queue = PrefetchQueue(numbers(taken, 100), 3, 2)
    assert [int(queue.next_arrays()[0]) for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(StopIteration):
            queue.next_arrays()
    assert taken == [0, 1]
    queue.close()


@pytest.mark.parametrize("error", [ValueError("a bad sample"), KeyboardInterrupt()], ids=repr)
def test_an_error_of_the_data_is_raised_after_the_elements_before_it_and_on_every_later_read(
    error: BaseException,
) -> None:
    queue = PrefetchQueue(numbers([], 2, error), 1)
    assert [int(queue.next_arrays()[0]) for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            queue.next_arrays()
        assert caught.value is error
    queue.close()


def infeed_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "infeed"}


def test_closing_ends_the_thread_and_all_waits_for_an_element() -> None:
    before = infeed_threads()
    queue = PrefetchQueue(numbers([], 100), 2)
    assert infeed_threads() - before
    queue.close()
    assert not infeed_threads() - before

    gate = threading.Event()

    def stuck() -> Iterator[list[Any]]:
        gate.wait(30)
        yield []

    waiting, errors = PrefetchQueue(stuck, 1), []

    def take() -> None:
        try:
            waiting.next_arrays()
        except QueueClosed as error:
            errors.append(error)

    takers = [threading.Thread(target=take) for _ in range(2)]
    for taker in takers:
        taker.start()
    closer = threading.Thread(target=waiting.close)
    closer.start()
    for taker in takers:
        taker.join(10)
    assert len(errors) == 2
    gate.set()
    closer.join(10)
    assert not infeed_threads() - before


def test_an_unreferenced_queue_ends_its_thread() -> None:
    before = infeed_threads()
    queue = PrefetchQueue(numbers([], 100), 2)
    (thread,) = infeed_threads() - before
    queue.next_arrays()
    del queue
    thread.join(10)
    assert not thread.is_alive()
