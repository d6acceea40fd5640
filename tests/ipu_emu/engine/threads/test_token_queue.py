"""Token queues: no token is lost or received twice, whether the receiver spins or sleeps."""

from __future__ import annotations

import time
from threading import Thread, Timer

import pytest

from ipu_emu.engine.threads.dependency_threads import TokenQueue

LOOKS = pytest.mark.parametrize("looks", [True, False], ids=["looks", "sleeps"])


@LOOKS
def test_tokens_arrive_in_their_order(looks: bool) -> None:
    there, back, seen = TokenQueue(looks=looks), TokenQueue(looks=looks), []

    def answer() -> None:
        for _ in range(500):
            token = there.get()
            seen.append(token)
            back.put(token)

    thread = Thread(target=answer)
    thread.start()
    sent = [number % 3 == 0 for number in range(500)]
    for token in sent:
        there.put(token)
        assert back.get() is token
    thread.join()
    assert seen == sent


@LOOKS
def test_a_late_token_is_waited_for(looks: bool) -> None:
    queue = TokenQueue(looks=looks)

    def late() -> None:
        time.sleep(0.02)
        queue.put(True)

    thread = Thread(target=late)
    thread.start()
    assert queue.get()
    thread.join()


def test_tokens_of_several_senders_are_all_received() -> None:
    queue = TokenQueue(looks=True)
    senders = [Thread(target=lambda: [queue.put(True) for _ in range(200)]) for _ in range(3)]
    for sender in senders:
        sender.start()
    assert all(queue.get() for _ in range(600))
    for sender in senders:
        sender.join()


def test_polling_ends_and_takes_no_longer_than_sleeping_would() -> None:
    """A receiver with a core of its own spins for well under a millisecond, however late the token is."""
    queue, spent = TokenQueue(looks=True), []
    for _ in range(10):
        Timer(0.01, queue.put, [True]).start()
        start = time.thread_time()
        queue.get()
        spent.append(time.thread_time() - start)
    assert sorted(spent)[7] < 0.001
