"""Channel: the authenticated connection between the launcher and one supervisor.

Both prove that they hold the key of the job, without sending it, before any message is read:

    launcher                                        supervisor
    challenge (32 bytes)                       ->
                                               <-   own challenge, HMAC("supervisor", both challenges)
    HMAC("launcher", both challenges)          ->

After that each side sends frames: 4 bytes of length, big-endian, and one message. Between hosts, where frames might
be tampered with, 16 bytes of a keyed digest (BLAKE2b) of the frame's number and the message come between the two,
with a key per connection and direction; a frame that was changed, omitted or repeated ends the connection.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import select
import socket
import sys
import time

from poprun_py.errors import ChannelClosed, ChannelError
from poprun_py.wire.messages import LARGEST, Message, decode, encode

_CHALLENGE = 32
_PROOF = 32
_LENGTH = 4
_SIGNATURE = 16
_PIECE = 1 << 18

#: Seconds without an answer after which a host counts as unreachable; a kernel answers even on a busy host.
SILENCE = 8.0

#: TCP keepalive, which probes an idle peer's kernel every second: socket option -> seconds, or number of probes.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 2, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 8}

#: Where struct tcp_info holds the milliseconds since the last acknowledgement.
_LAST_ACK = slice(56, 60)


def new_key() -> bytes:
    """Return a random key for one job."""
    return os.urandom(32)


def _proof(key: bytes, role: bytes, theirs: bytes, ours: bytes) -> bytes:
    return hmac.digest(key, role + theirs + ours, "sha256")


class _Signer:
    """Computes the signatures of the frames of one direction."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def next(self, data: bytes) -> bytes:
        """Return the signature of the next frame."""
        self._count += 1
        counted = self._count.to_bytes(8, "big") + data
        return hashlib.blake2b(counted, key=self._key, digest_size=_SIGNATURE).digest()


class Channel:
    """A connected, authenticated, non-blocking socket that carries messages both ways.

    ``keys`` sign the frames that are sent and those that are received; without keys, frames are not signed.
    """

    def __init__(self, connection: socket.socket, keys: tuple[bytes, bytes] | None = None) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self._socket = connection
        self._signers = (_Signer(keys[0]), _Signer(keys[1])) if keys else None
        self._head = _LENGTH + (_SIGNATURE if keys else 0)
        self._received = bytearray()
        self._unsent = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_between_hosts(self) -> bool:
        return self._signers is not None

    @property
    def is_silent(self) -> bool:
        """Whether the peer's kernel has acknowledged nothing for so long that its host must be unreachable.

        TCP keepalive sends no probes while data is unacknowledged, and retransmission goes on for many minutes.
        """
        information = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK.stop)
        return int.from_bytes(information[_LAST_ACK], sys.byteorder) > SILENCE * 1000

    @property
    def wants_to_send(self) -> bool:
        return bool(self._unsent)

    def send(self, message: Message) -> None:
        """Queue a message and send as much as the socket accepts; only ``receive`` raises if the peer is gone."""
        data = encode(message)
        signature = self._signers[0].next(data) if self._signers else b""
        self._unsent += len(data).to_bytes(_LENGTH, "big") + signature + data
        self.push()

    def push(self) -> None:
        """Send as much as the socket accepts."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()

    def flush(self, *, timeout: float) -> None:
        """Send everything that is queued, or as much as the peer takes within ``timeout`` seconds."""
        end = time.monotonic() + timeout
        while self._unsent and (left := end - time.monotonic()) > 0:
            select.select([], [self._socket], [], left)
            self.push()

    def receive(self) -> list[Message]:
        """Return the messages that have arrived; raise ChannelClosed without a peer, ChannelError for a bad one."""
        try:
            piece = self._socket.recv(_PIECE)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        if not piece:
            raise ChannelClosed("the peer is gone")
        self._received += piece
        return self._messages()

    def _messages(self) -> list[Message]:
        messages, start = [], 0
        while len(self._received) - start >= _LENGTH:
            length = int.from_bytes(self._received[start : start + _LENGTH], "big")
            if length > LARGEST:
                raise ChannelError(f"a message of {length} bytes; at most {LARGEST} are allowed")
            body = start + self._head
            if len(self._received) < body + length:
                break
            data = bytes(self._received[body : body + length])
            self._check(bytes(self._received[start + _LENGTH : body]), data)
            messages.append(decode(data))
            start = body + length
        del self._received[:start]
        return messages

    def _check(self, signature: bytes, data: bytes) -> None:
        if self._signers and not hmac.compare_digest(signature, self._signers[1].next(data)):
            raise ChannelError("a message with a wrong signature")

    def close(self) -> None:
        self._socket.close()


class Handshake:
    """The launcher's half of the handshake, on a connection that may come from anyone."""

    def __init__(self, connection: socket.socket, key: bytes) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._key = key
        self._challenge = os.urandom(_CHALLENGE)
        self._answer = b""
        self._is_between_hosts = _is_between_hosts(connection)
        connection.send(self._challenge)

    def fileno(self) -> int:
        return self._socket.fileno()

    def advance(self) -> Channel | None:
        """Read the answer; return the channel once the peer is authenticated; raise ChannelError if it fails."""
        try:
            piece = self._socket.recv(_CHALLENGE + _PROOF - len(self._answer))
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelError(str(error)) from None
        if not piece:
            raise ChannelError("it left")
        self._answer += piece
        if len(self._answer) < _CHALLENGE + _PROOF:
            return None
        theirs, proof = self._answer[:_CHALLENGE], self._answer[_CHALLENGE:]
        if not hmac.compare_digest(proof, _proof(self._key, b"supervisor", self._challenge, theirs)):
            raise ChannelError("it does not hold the key")
        try:
            self._socket.send(_proof(self._key, b"launcher", self._challenge, theirs))
            return Channel(
                self._socket, _frame_keys(self._key, self._challenge, theirs) if self._is_between_hosts else None
            )
        except OSError as error:
            raise ChannelError(str(error)) from None

    def close(self) -> None:
        self._socket.close()


def connect(addresses: str, key: bytes, *, timeout: float) -> Channel:
    """Connect to ``host:port`` and do the supervisor's half of the handshake; raise ChannelError if that fails.

    Of several addresses, separated by commas, the first that answers is used; ``timeout`` seconds is for all of them.
    """
    remaining = addresses.split(",")
    while True:
        try:
            return _connect(remaining.pop(0), key, timeout=timeout / (len(remaining) + 1))
        except ChannelError:
            if not remaining:
                raise


def _connect(address: str, key: bytes, *, timeout: float) -> Channel:
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host, int(port)), timeout=timeout)
        between_hosts = _is_between_hosts(connection)
        theirs, ours = _exactly(connection, _CHALLENGE), os.urandom(_CHALLENGE)
        connection.sendall(ours + _proof(key, b"supervisor", theirs, ours))
        proof = _exactly(connection, _PROOF)
    except OSError as error:
        raise ChannelError(f"the launcher at {address} cannot be reached: {error}") from None
    if not hmac.compare_digest(proof, _proof(key, b"launcher", theirs, ours)):
        connection.close()
        raise ChannelError(f"the process that listens at {address} does not hold the key of this job")
    return Channel(connection, _frame_keys(key, theirs, ours)[::-1] if between_hosts else None)


def _is_between_hosts(connection: socket.socket) -> bool:
    """Whether the connection leaves this host; nothing can tamper with the loopback."""
    return not connection.getpeername()[0].startswith("127.")


def _frame_keys(key: bytes, challenge: bytes, answer: bytes) -> tuple[bytes, bytes]:
    """The keys that sign the launcher's and the supervisor's frames."""
    return _proof(key, b"launcher's frames", challenge, answer), _proof(
        key, b"supervisor's frames", challenge, answer
    )


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("it closed the connection")
        data += piece
    return data
