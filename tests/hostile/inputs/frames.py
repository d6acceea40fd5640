"""Frames: damaged and forged frames, sent to a channel of the launcher."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import msgpack

from poprun_py.errors import ChannelError
from poprun_py.wire import messages
from poprun_py.wire.channel import Channel, Handshake
from tests.hostile.inputs.mutations import damaged, odd_value
from tests.hostile.kind import Trial

__all__ = ["frames"]

_MESSAGES = [
    messages.Hello(0, "host", 12),
    messages.Started(77, [0, 1], [0], "", 1.5),
    messages.Output(1, b"a line\n"),
    messages.Credit(1000),
    messages.Input(b"input"),
    messages.Usage(1.5, 1 << 30),
    messages.Report(5, 640, 0.25),
    messages.Exited(-9, messages.OWN, 12.5),
    messages.Stop(15, 2.0),
    messages.Gone(),
]


@contextmanager
def frames() -> Iterator[Trial]:
    listener = socket.create_server(("127.0.0.1", 0))

    def trial(dice: random.Random) -> list[str]:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        with ours, theirs:
            theirs.settimeout(5)
            return _handshake(ours, theirs, dice) if dice.random() < 0.2 else _channel(ours, theirs, dice)

    with listener:
        yield trial


def _handshake(ours: socket.socket, theirs: socket.socket, dice: random.Random) -> list[str]:
    """No peer without the key gets a channel."""
    half = Handshake(ours, os.urandom(32))
    challenge = theirs.recv(32)
    theirs.sendall(dice.choice([challenge * 2, dice.randbytes(64), bytes(64), challenge + dice.randbytes(32)]))
    theirs.shutdown(socket.SHUT_WR)
    for _ in range(100):
        try:
            if half.advance():
                return ["a peer without the key was let in"]
        except ChannelError:
            return []
    return ["the handshake goes on for ever"]


def _channel(ours: socket.socket, theirs: socket.socket, dice: random.Random) -> list[str]:
    """Messages of the right types, or a ChannelError; with keys no damaged frame gets through."""
    key = dice.randbytes(32)
    signed = dice.random() < 0.5
    channel = Channel(ours, (key, key) if signed else None)
    sent = dice.choices(_MESSAGES, k=dice.randrange(1, 4))
    data = encoded = _encoded(sent, key if signed else None)
    if dice.random() < 0.3:
        content = msgpack.packb(_packable(odd_value(dice)))
        data = len(content).to_bytes(4, "big") + (dice.randbytes(16) if signed else b"") + content
    else:
        data = damaged(encoded, dice)
    theirs.sendall(data)
    theirs.shutdown(socket.SHUT_WR)
    received: list[messages.Message] = []
    for _ in range(1000):
        try:
            received += channel.receive()
        except ChannelError:
            break
    else:
        return ["the channel never closes"]
    if signed and received != sent[: len(received)]:
        return [f"sent {sent}, received {received}"]
    wrong = [message for message in received if messages.decode(messages.encode(message)) != message]
    return [f"messages that cannot be sent again: {wrong}"] if [w for w in wrong if "nan" not in repr(w)] else []


def _encoded(sent: list[messages.Message], key: bytes | None) -> bytes:
    """The bytes that a channel writes for these messages."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as ours, listener.accept()[0] as theirs:
        channel = Channel(ours, (key, key) if key else None)
        for message in sent:
            channel.send(message)
        channel.flush(timeout=5)
        ours.shutdown(socket.SHUT_WR)
        data = b""
        while piece := theirs.recv(1 << 16):
            data += piece
    return data


def _packable(value: object) -> object:
    """``value`` without what msgpack cannot write."""
    if isinstance(value, dict):
        return {str(key).encode(errors="replace").decode(): _packable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_packable(item) for item in value]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return 0
    return value
