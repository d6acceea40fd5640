"""Channel: messages between authenticated peers arrive complete, and all other peers are refused."""

from __future__ import annotations

import hmac
import os
import random
import socket
import threading
import time

import msgpack
import pytest

from poprun_py.errors import ChannelClosed, ChannelError
from poprun_py.wire import messages
from poprun_py.wire.channel import Channel, Handshake, connect, new_key
from poprun_py.wire.messages import LARGEST, decode, encode

START = messages.Start(
    argv=["prog", "bad\udcff"],
    executable="/bin/prog",
    cwd="/",
    environment={"A": "1"},
    unset=["B"],
    has_input=False,
    placement="spreadnuma",
    local_index=0,
    local_count=2,
    threads=["OMP_NUM_THREADS"],
    network="",
    folder="/tmp/x",
    shared=["UCX_POSIX_DIR"],
    usage_interval=1.0,
)
EXAMPLES = [
    messages.Hello(3, "host", 7),
    START,
    messages.Started(5, [0, 1], [0], "it cannot", 4.5),
    messages.NotStarted("why"),
    messages.Output(1, b"\xff\x00"),
    messages.Credit(65536),
    messages.Input(b""),
    messages.InputTaken(),
    messages.Usage(0.5, 1 << 40),
    messages.Report(-1, 64, float("inf")),
    messages.Hung(),
    messages.Signal(10),
    messages.Stop(15, 0.5),
    messages.Exited(-9, messages.OWN, 12.5),
    messages.Gone(),
    messages.Waiting(),
    messages.Leave(),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_messages_are_encoded_and_decoded(message):
    result = decode(encode(message))
    assert result == message
    assert type(result) is type(message)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"GET / HTTP/1.1\r\n\r\n",
        msgpack.packb(None),
        msgpack.packb([]),
        msgpack.packb({}),
        msgpack.packb(["Nonesuch"]),
        msgpack.packb([["Hello"], 1, "h", 2]),
        msgpack.packb(["Hello", 1, "h"]),
        msgpack.packb(["Hello", 1, "h", 2, 3]),
        msgpack.packb(["Hello", "1", "h", 2]),
        msgpack.packb(["Hello", True, "h", 2]),
        msgpack.packb(["Output", 1, "text"]),
        msgpack.packb(["Start", ["a", 1], "x", "/", {}, [], False, 0.0]),
        msgpack.packb(["Start", ["a"], "x", "/", {"a": 1}, [], False, 0.0]),
        msgpack.packb(["Stop", 15, 1]),
        msgpack.packb(["Gone"]) + b"x",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 2000,
    ],
)
def test_malformed_messages_are_refused(data):
    with pytest.raises(ChannelError):
        decode(data)


def test_mutated_messages_are_read_or_refused():
    dice = random.Random(2)
    for _ in range(3000):
        data = bytearray(encode(dice.choice(EXAMPLES)))
        for _ in range(dice.randint(1, 3)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        try:
            decode(bytes(data[: dice.randint(1, len(data))]))
        except ChannelError:
            continue


@pytest.fixture
def pair():
    left, right = tcp_pair()
    channels = Channel(left), Channel(right)
    yield channels
    for channel in channels:
        channel.close()


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        return left, listener.accept()[0]


def receive(channel, count, timeout=100.0):
    got, end = [], time.monotonic() + timeout
    while len(got) < count and time.monotonic() < end:
        got += channel.receive()
    return got


def test_many_messages_of_all_sizes_arrive_in_order(pair):
    left, right = pair
    sent = [messages.Output(1, os.urandom(size)) for size in (0, 1, 65536, 3, 1_000_000, 0)]
    for message in sent:
        left.send(message)
    got, end = [], time.monotonic() + 100
    while len(got) < len(sent) and time.monotonic() < end:
        left.push()
        got += right.receive()
    assert got == sent
    assert not left.wants_to_send


def test_a_frame_that_says_it_is_huge_is_refused_before_it_arrives(pair):
    left, right = pair
    os.write(left.fileno(), (LARGEST + 1).to_bytes(4, "big"))
    with pytest.raises(ChannelError, match=f"at most {LARGEST} are allowed"):
        receive(right, 1)


def test_a_peer_that_leaves_is_noticed_and_sending_to_it_is_harmless(pair):
    left, right = pair
    right.close()
    with pytest.raises(ChannelClosed):
        receive(left, 1)
    for _ in range(100):
        left.send(messages.Gone())
    assert not left.wants_to_send


class Door:
    """The launcher's side, which accepts one connection in a thread."""

    def __init__(self, key: bytes) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self.listener.getsockname())
        self.result: Channel | ChannelError | None = None
        self.thread = threading.Thread(target=self.serve, args=(key,))
        self.thread.start()

    def serve(self, key: bytes) -> None:
        handshake = Handshake(self.listener.accept()[0], key)
        end = time.monotonic() + 100
        while self.result is None and time.monotonic() < end:
            try:
                self.result = handshake.advance()
            except ChannelError as error:
                self.result = error
                handshake.close()

    def verdict(self) -> Channel | ChannelError | None:
        self.thread.join()
        self.listener.close()
        return self.result


def test_peers_with_the_key_are_connected():
    key = new_key()
    door = Door(key)
    mine = connect(door.address, key, timeout=100)
    theirs = door.verdict()
    assert isinstance(theirs, Channel)
    mine.send(messages.Hello(1, "h", 2))
    assert receive(theirs, 1) == [messages.Hello(1, "h", 2)]


@pytest.fixture
def signed():
    """Two channels as between hosts, and the bytes that the first one sends, which the test delivers."""
    (left, tap), (sender, right) = tcp_pair(), tcp_pair()
    channels = Channel(left, (b"a" * 32, b"b" * 32)), Channel(right, (b"b" * 32, b"a" * 32))
    yield *channels, tap, sender
    for end in (*channels, tap, sender):
        end.close()


def frames(channel, tap, *sent):
    """The bytes of each message on the wire."""
    taken = []
    for message in sent:
        channel.send(message)
        taken.append(tap.recv(4096))
    return taken


def test_signed_frames_arrive(signed):
    left, right, tap, sender = signed
    sent = [messages.Credit(1), messages.Credit(1), messages.Output(1, b"x" * 1000)]
    sender.sendall(b"".join(frames(left, tap, *sent)))
    assert receive(right, 3) == sent


@pytest.mark.parametrize(
    "forge",
    [
        lambda first, second: first[:-1] + bytes([first[-1] ^ 1]),  # changed
        lambda first, second: first[:4] + bytes(16) + first[20:],  # not signed
        lambda first, second: second,  # the first one left out
        lambda first, second: first + first,  # repeated
        lambda first, second: first[:3] + bytes([first[3] - 1]) + first[4:],  # cut
    ],
    ids=["changed", "unsigned", "left out", "repeated", "cut"],
)
def test_frames_that_were_tampered_with_are_refused(signed, forge):
    left, right, tap, sender = signed
    sender.sendall(forge(*frames(left, tap, messages.Credit(1), messages.Credit(2))))
    with pytest.raises(ChannelError, match="a wrong signature"):
        receive(right, 2)


def test_messages_cannot_be_sent_back_to_their_sender(signed):
    left, _, tap, _ = signed
    tap.sendall(*frames(left, tap, messages.Credit(1)))
    with pytest.raises(ChannelError, match="a wrong signature"):
        receive(left, 1)


def test_a_wrong_key_is_refused_on_both_sides():
    door = Door(new_key())
    with pytest.raises(ChannelError):
        connect(door.address, new_key(), timeout=100)
    assert "does not hold the key" in str(door.verdict())


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0" * 64, bytes(range(64)), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 9],
    ids=["nothing", "zeros", "bytes", "http"],
)
def test_unauthenticated_peers_are_refused(answer):
    door = Door(new_key())
    host, port = door.address.split(":")
    with socket.create_connection((host, int(port)), timeout=100) as stranger:
        stranger.sendall(answer)
        stranger.shutdown(socket.SHUT_WR)
        assert isinstance(door.verdict(), ChannelError)


def test_a_challenge_cannot_be_reflected():
    """An answer recorded in one handshake proves nothing in the next."""
    key = new_key()
    first, second = Door(key), Door(key)
    taps = []
    for door in (first, second):
        host, port = door.address.split(":")
        tap = socket.create_connection((host, int(port)), timeout=100)
        taps.append((tap, tap.recv(32)))
    (left, challenge), (other, _) = taps

    answer = b"c" * 32 + hmac.digest(key, b"supervisor" + challenge + b"c" * 32, "sha256")
    left.sendall(answer)
    other.sendall(answer)
    assert isinstance(first.verdict(), Channel)
    assert isinstance(second.verdict(), ChannelError)
    left.close()
    other.close()


def test_a_launcher_that_is_not_ours_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        thread = threading.Thread(target=lambda: impostor.accept()[0].sendall(b"x" * 64))
        thread.start()
        with pytest.raises(ChannelError, match="does not hold the key"):
            connect("{}:{}".format(*impostor.getsockname()), new_key(), timeout=100)
        thread.join()


def test_an_unreachable_launcher_is_reported_with_its_address():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
    with pytest.raises(ChannelError, match=address):
        connect(address, new_key(), timeout=100)
