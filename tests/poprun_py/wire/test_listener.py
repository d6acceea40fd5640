"""Listener: unauthenticated peers that are slow, replay messages or are many keep no supervisor out."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from poprun_py.linux.event_sources import Timers
from poprun_py.wire import listener, messages
from poprun_py.wire.channel import connect
from poprun_py.wire.listener import Listener


class ListenerThread:
    """A listener whose event loop runs in a thread, and the hellos that it has accepted."""

    def __init__(self) -> None:
        self.selector, self.timers = selectors.DefaultSelector(), Timers()
        self.hellos: list[messages.Hello] = []
        self.log: list[str] = []
        self.listener = Listener(self.selector, self.timers, accept=self.accept, log=self.log.append)
        self.ends = False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def accept(self, hello, channel) -> bool:
        self.hellos.append(hello)
        return False

    def serve(self) -> None:
        while not self.ends:
            for key, _ in self.selector.select(0.02):
                if key.fd in self.selector.get_map():
                    key.data()
            self.timers.run_due()

    def dial(self) -> socket.socket:
        host, port = self.listener.address.split(":")
        return socket.create_connection((host, int(port)), timeout=250)

    def wait_for(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < end, self.log
            time.sleep(0.01)

    def introduce(self, rank: int) -> None:
        connect(self.listener.address, self.listener.key, timeout=250).send(messages.Hello(rank, "h", 1))
        self.wait_for(lambda: messages.Hello(rank, "h", 1) in self.hellos)


@pytest.fixture
def desk() -> Iterator[ListenerThread]:
    desk = ListenerThread()
    yield desk
    desk.ends = True
    desk.thread.join()
    desk.listener.close()
    desk.selector.close()


def test_a_crowd_that_stays_and_says_nothing_keeps_nobody_out(desk):
    crowd = [desk.dial() for _ in range(300)]
    desk.introduce(3)
    for one in crowd:
        one.close()


def test_those_who_dawdle_are_shown_out(desk, monkeypatch):
    monkeypatch.setattr(listener, "_TIMEOUT", 1.0)
    slow = desk.dial()
    with suppress(ConnectionError):
        for _ in range(60):  # less than a whole answer
            slow.sendall(b"x")
            time.sleep(0.03)
    desk.wait_for(lambda: any("it took too long" in line for line in desk.log))
    silent = connect(desk.listener.address, desk.listener.key, timeout=250)  # holds the key, but says no hello
    desk.wait_for(lambda: any("sent no Hello" in line for line in desk.log))
    silent.close()
    monkeypatch.undo()
    desk.introduce(1)


def test_what_was_recorded_from_another_connection_proves_nothing(desk):
    """A listener in the middle records all that an honest supervisor says, and says it again."""
    with socket.create_server(("127.0.0.1", 0)) as middle:
        recorded: list[bytes] = []

        def pass_on() -> None:
            here, there = middle.accept()[0], desk.dial()
            here.sendall(there.recv(32))
            recorded.append(here.recv(64, socket.MSG_WAITALL))
            there.sendall(recorded[0])
            here.sendall(there.recv(32))
            recorded.append(here.recv(4096))
            there.sendall(recorded[1])
            desk.wait_for(lambda: desk.hellos)
            here.close()
            there.close()

        thread = threading.Thread(target=pass_on)
        thread.start()
        host, port = middle.getsockname()
        connect(f"{host}:{port}", desk.listener.key, timeout=250).send(messages.Hello(5, "h", 1))
        thread.join()
    assert desk.hellos == [messages.Hello(5, "h", 1)]
    again = desk.dial()
    assert len(again.recv(32)) == 32
    again.sendall(b"".join(recorded))
    with suppress(ConnectionResetError):
        assert again.recv(32) == b""
    desk.wait_for(lambda: any("does not hold the key" in line for line in desk.log))
    assert len(desk.hellos) == 1
