"""report(): its messages; it never blocks, and does nothing without a live view."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from popdist_py import progress
from popdist_py.environment import REPORT_SOCKET
from popdist_py.progress import Reporter, report
from popdist_py.supervisor_socket import SupervisorSocket


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.settimeout(100)
    with left, right:
        yield left, right


def reporter(end: socket.socket) -> Reporter:
    return Reporter(inherited(end))


def inherited(end: socket.socket) -> SupervisorSocket:
    return SupervisorSocket({REPORT_SOCKET: f"{end.fileno()}:{os.fstat(end.fileno()).st_ino}"})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds, that reporters see."""
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


def test_samples_reported_in_between_are_added_up(ends, clock):
    sender = reporter(ends[1])
    for step in range(100):
        sender.report(step, 10, 0.5)
    assert ends[0].recv(100) == b"progress 0 10 0.5"
    clock[0] = 0.11
    sender.report(None, 1, None)
    assert ends[0].recv(100) == b"progress 99 1001 0.5"


def test_many_steps_send_few_messages_and_wait_for_none(ends, clock):
    sender = reporter(ends[1])
    for step in range(5000):
        clock[0] = step / 10000
        sender.report(step, 1, None)
    ends[0].setblocking(False)
    for _ in range(5):
        ends[0].recv(100)
    with pytest.raises(BlockingIOError):
        ends[0].recv(100)


def test_a_reader_that_does_not_read_or_has_ended_blocks_nothing(ends, clock):
    sender = reporter(ends[1])
    for second in range(5010):
        if second == 5000:
            ends[0].close()
        clock[0] = second
        sender.report(1, 1, 1.0)


@pytest.mark.parametrize("text", ["", "nonsense", "1", "-1:5", "99999:1", "1:1", "a:b"])
def test_a_descriptor_that_is_not_the_socket_is_not_used(text):
    socket = SupervisorSocket({REPORT_SOCKET: text})
    Reporter(socket).report(1, 1, 1.0)
    assert not socket.is_open


def test_a_descriptor_that_means_something_else_by_now_is_not_written_to(ends, tmp_path):
    with (tmp_path / "file").open("wb") as stream:
        sender = Reporter(SupervisorSocket({REPORT_SOCKET: f"{stream.fileno()}:{os.fstat(ends[1].fileno()).st_ino}"}))
        sender.report(1, 1, 1.0)
    assert (tmp_path / "file").read_bytes() == b""


def test_without_a_launcher_nothing_happens():
    report(step=1, samples=64, loss=0.5)


def test_a_notice_that_must_arrive_waits_for_room(ends):
    sender = inherited(ends[1])
    for number in range(5000):
        sender.send(f"progress {number} 1 1.0")  # most do not fit
    reader = Thread(target=lambda: [*iter(lambda: ends[0].recv(100), b"lost 3")])
    reader.start()
    sender.send("lost 3", patience=100.0)
    reader.join(100)
    assert not reader.is_alive()
