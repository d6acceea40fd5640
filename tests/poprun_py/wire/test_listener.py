"""Listener: slow, replaying or many unauthenticated peers do not keep a supervisor from connecting."""

from __future__ import annotations

import errno
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
def listening() -> Iterator[ListenerThread]:
    listening = ListenerThread()
    yield listening
    listening.ends = True
    listening.thread.join()
    listening.listener.close()
    listening.selector.close()


def test_many_silent_peers_keep_no_supervisor_out(listening):
    peers = [listening.dial() for _ in range(300)]
    listening.introduce(3)
    for peer in peers:
        peer.close()


def test_slow_peers_are_refused(listening, monkeypatch):
    monkeypatch.setattr(listener, "TIMEOUT", 1.0)
    slow = listening.dial()
    with suppress(ConnectionError):
        for _ in range(60):  # less than a complete answer
            slow.sendall(b"x")
            time.sleep(0.03)
    listening.wait_for(lambda: any("it took too long" in line for line in listening.log))
    silent = connect(listening.listener.address, listening.listener.key, timeout=250)  # and sends no Hello
    listening.wait_for(lambda: any("sent no Hello" in line for line in listening.log))
    silent.close()
    monkeypatch.undo()
    listening.introduce(1)


def test_replayed_messages_do_not_authenticate(listening):
    """An eavesdropper records all messages of a real supervisor, and replays them."""
    with socket.create_server(("127.0.0.1", 0)) as middle:
        recorded: list[bytes] = []

        def pass_on() -> None:
            here, there = middle.accept()[0], listening.dial()
            here.sendall(there.recv(32))
            recorded.append(here.recv(64, socket.MSG_WAITALL))
            there.sendall(recorded[0])
            here.sendall(there.recv(32))
            recorded.append(here.recv(4096))
            there.sendall(recorded[1])
            listening.wait_for(lambda: listening.hellos)
            here.close()
            there.close()

        thread = threading.Thread(target=pass_on)
        thread.start()
        host, port = middle.getsockname()
        connect(f"{host}:{port}", listening.listener.key, timeout=250).send(messages.Hello(5, "h", 1))
        thread.join()
    assert listening.hellos == [messages.Hello(5, "h", 1)]
    again = listening.dial()
    assert len(again.recv(32)) == 32
    again.sendall(b"".join(recorded))
    with suppress(ConnectionResetError):
        assert again.recv(32) == b""
    listening.wait_for(lambda: any("does not hold the key" in line for line in listening.log))
    assert len(listening.hellos) == 1


def test_a_launcher_without_descriptors_does_not_spin(listening, monkeypatch):
    attempts = []

    def accept(self):
        attempts.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", accept)
    with listening.dial():
        listening.wait_for(lambda: len(attempts) == 3)
    assert attempts[-1] - attempts[0] > 0.2
    monkeypatch.undo()
    listening.introduce(3)
