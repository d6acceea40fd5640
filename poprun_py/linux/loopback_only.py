"""Loopback only: a filter that closes the listening sockets of another process to other hosts.

A filter on the socket drops every packet that has not come in by the loopback interface, as a firewall would.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator

_SO_ATTACH_FILTER = 26
_SYS_PIDFD_GETFD = 438

#: Where a filter reads the number of the interface of a packet (SKF_AD_OFF + SKF_AD_IFINDEX); the loopback has 1.
_INTERFACE, _LOOPBACK = 0xFFFFF000 + 8, 1

#: Classic BPF, (code, jump if true, jump if false, operand): accept if the interface is the loopback, else drop.
_PROGRAM = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x20, 0, 0, _INTERFACE),  # load
        (0x15, 0, 1, _LOOPBACK),  # equal?
        (0x06, 0, 0, 0xFFFFFFFF),  # return: all of the packet
        (0x06, 0, 0, 0),  # return: nothing of it
    )
)

_libc = ctypes.CDLL(None, use_errno=True)


def ignore_other_hosts(pid: int) -> list[int]:
    """Close the TCP ports on which process ``pid`` listens to other hosts; return these ports.

    The process must be one that this process may trace, such as a child of the same user. Ports stay open where the
    kernel refuses that, in some containers.
    """
    return sorted({port for connection in sockets_of(pid) if (port := _filtered(connection))})


def sockets_of(pid: int) -> Iterator[socket.socket]:
    """Copies of the sockets of a process; none if it is gone, or may not be looked into."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if _is_socket(f"/proc/{pid}/fd/{name}"):
                copy: int = _libc.syscall(_SYS_PIDFD_GETFD, process, int(name), 0)
                if copy >= 0:
                    with socket.socket(fileno=copy) as connection:
                        yield connection
    except OSError:
        return
    finally:
        os.close(process)


def _is_socket(path: str) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except OSError:  # it was closed
        return False


def _filtered(connection: socket.socket) -> int:
    """The port of a socket that listens at more than the loopback, and now ignores all else; 0 for any other."""
    try:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return 0
        if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return 0
        address, port = connection.getsockname()[:2]
        if address == "::1" or address.startswith("127."):
            return 0
        program = ctypes.create_string_buffer(_PROGRAM, len(_PROGRAM))
        count = len(_PROGRAM) // 8
        connection.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", count, ctypes.addressof(program))
        )
    except OSError:
        return 0
    return int(port)
