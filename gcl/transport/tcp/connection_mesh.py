"""mesh: a connection between each two of some ranks.

listen     every rank, on a port that the system chooses
tell       everyone: addresses of this host, the port, and a secret that callers must know
call       those of lower rank, at the addresses that are likely first; then answer those of higher rank
tell       everyone whether it went well: else nobody has a mesh
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import msgpack
import psutil

__all__ = ["mesh"]

_SECRET_BYTES = 16
_CALL_SECONDS = 2.0  # for one address
_MESH_SECONDS = 15.0

#: address and netmask
Interface = tuple[str, str]


def mesh(
    rank: int, members: Sequence[int], all_gather: Callable[[bytes], list[bytes]]
) -> dict[int, socket.socket] | None:
    """Connections of ``rank`` (of the job) to each of ``members``, by its place among them; None if one is missing.

    All ranks of the job call it together; members may differ, and may be no more than the rank itself.
    """
    secret = secrets.token_bytes(_SECRET_BYTES)
    deadline = monotonic() + _MESH_SECONDS
    with socket.create_server(("", 0), backlog=len(members) + 8) as server:
        mine = _interfaces()
        invitation = msgpack.packb((mine, server.getsockname()[1], secret))
        invitations = [msgpack.unpackb(reply) for reply in all_gather(invitation)]
        me = members.index(rank)
        found: dict[int, socket.socket] = {}
        with suppress(OSError, TimeoutError):
            for place in range(me):
                found[place] = _call(mine, invitations[members[place]], me, deadline)
            while len(found) < len(members) - 1:
                place, connection = _answer(server, secret, deadline)
                found[place] = connection
    complete = len(found) == len(members) - 1
    if all(reply == b"1" for reply in all_gather(b"1" if complete else b"0")):
        return found
    for connection in found.values():
        connection.close()
    return None


def _interfaces() -> list[Interface]:
    """Every IPv4 address of this host that others might reach, and the loopback if there is no other."""
    found = [
        (address.address, address.netmask or "255.255.255.255")
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == socket.AF_INET
    ]
    return [one for one in found if not ipaddress.ip_address(one[0]).is_loopback] or found


def _call(mine: list[Interface], invitation: Any, me: int, deadline: float) -> socket.socket:
    """A connection to the one who sent ``invitation``: on a common network if there is one."""
    interfaces, port, secret = invitation
    networks = [ipaddress.ip_interface("/".join(one)).network for one in mine]
    addresses = [ipaddress.ip_address(address) for address, _ in interfaces]
    for address in sorted(addresses, key=lambda address: not any(address in network for network in networks)):
        seconds = min(_CALL_SECONDS, deadline - monotonic())
        if seconds <= 0:
            break
        try:
            connection = socket.create_connection((str(address), port), timeout=seconds)
        except OSError:
            continue
        with suppress(OSError):
            connection.settimeout(max(0.1, deadline - monotonic()))
            connection.sendall(secret + me.to_bytes(4, "little"))
            if _read(connection, _SECRET_BYTES) == secret[::-1]:
                return connection
        connection.close()
    raise TimeoutError


def _answer(server: socket.socket, secret: bytes, deadline: float) -> tuple[int, socket.socket]:
    """The next caller that knows the secret, and its place."""
    while True:
        server.settimeout(max(0.001, deadline - monotonic()))
        connection, _ = server.accept()
        with suppress(OSError):
            connection.settimeout(_CALL_SECONDS)
            said = _read(connection, _SECRET_BYTES + 4)
            if secrets.compare_digest(said[:_SECRET_BYTES], secret):
                connection.sendall(secret[::-1])
                return int.from_bytes(said[_SECRET_BYTES:], "little"), connection
        connection.close()


def _read(connection: socket.socket, nbytes: int) -> bytes:
    """Exactly ``nbytes``, or fewer at the end."""
    data = b""
    while len(data) < nbytes and (more := connection.recv(nbytes - len(data))):
        data += more
    return data
