"""Attacks on the channel of a running job, which must not be affected."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from poprun_py.errors import ChannelError
from poprun_py.wire import messages
from poprun_py.wire.channel import connect
from poprun_py.wire.messages import LARGEST
from tests.poprun_py.conftest import Launch, launched


@pytest.fixture(scope="module")
def attacked_job(tmp_path_factory) -> Iterator[Launch]:
    """A job that runs until it reads a line; it must succeed despite all attacks on its channel."""
    script = "echo READY; test $PMI_RANK = 1 || read line; echo END"
    job = launched(tmp_path_factory.mktemp("job"), "-vv", "--num-instances", "2", "sh", "-c", script)
    try:
        job.read_until("READY", 2)
        mpirun = next(pid for pid, parent in job.processes().items() if parent == job.process.pid)
        environment = dict(re.findall(r"(POPRUN_PY_\w+)=([^\0]*)", Path(f"/proc/{mpirun}/environ").read_text()))
        job.address = environment["POPRUN_PY_CHANNEL"]
        job.key = environment["POPRUN_PY_KEY"]
        yield job
        command_lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in job.processes()]
        code, out, err = job.finish(b"go on\n")
        assert code == 0, err
        assert b"[1,0]<stdout>:END" in out
        assert job.key.encode() not in out + err
        assert not any(job.key in line for line in command_lines)
        job.assert_nothing_left()
    finally:
        job.kill_rest()


@pytest.fixture
def job(attacked_job) -> Iterator[Launch]:
    """The same job for every attack, which must leave it running."""
    yield attacked_job
    assert attacked_job.process.poll() is None


def dial(job) -> socket.socket:
    host, port = job.address.split(":")
    return socket.create_connection((host, int(port)), timeout=250)


def assert_refused(connection: socket.socket) -> None:
    """The launcher closes the connection, and has sent only its challenge."""
    received = b""
    try:
        while piece := connection.recv(4096):
            received += piece
    except ConnectionResetError:
        pass
    connection.close()
    assert len(received) <= 32


def test_the_channel_listens_on_this_machine_only(job):
    assert job.address.startswith("127.0.0.1:")


def test_unauthenticated_connections(job):
    for text in (b"GET / HTTP/1.1\r\n\r\n" * 10, os.urandom(64), b"\0" * 64, b"\xff" * 100_000):
        connection = dial(job)
        try:
            connection.sendall(text)
        except ConnectionError:
            continue
        assert_refused(connection)


def test_a_wrong_key(job):
    for key in (b"", os.urandom(32), bytes(32)):
        with pytest.raises(ChannelError):
            connect(job.address, key, timeout=250)


def test_many_silent_connections(job):
    peers = [dial(job) for _ in range(300)]
    peers += [dial(job)]
    for connection in peers:
        connection.close()


@pytest.mark.parametrize(
    "frame",
    [
        (LARGEST + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\xc1",
        b"\0\0\0\0",
        messages.encode(messages.Gone()).rjust(10, b"\0"),
    ],
    ids=["too long", "longest", "not msgpack", "empty", "padded"],
)
def test_even_with_the_key_a_malformed_message_only_costs_the_connection(job, frame):
    channel = connect(job.address, bytes.fromhex(job.key), timeout=250)
    with socket.socket(fileno=os.dup(channel.fileno())) as connection:
        connection.setblocking(True)
        connection.sendall(frame)
        assert_refused(connection)


@pytest.mark.parametrize("rank", [-1, 0, 1, 2, 2**40])
def test_even_with_the_key_no_peer_replaces_an_instance(job, rank):
    channel = connect(job.address, bytes.fromhex(job.key), timeout=250)
    channel.send(messages.Hello(rank, "elsewhere", 1))
    with socket.socket(fileno=os.dup(channel.fileno())) as connection:
        connection.setblocking(True)
        assert_refused(connection)
