"""Warm processes: the one that forks outlives those who ask it and end in the middle."""

from __future__ import annotations

import socket
import struct
import subprocess

from tests.helpers.warm_processes import warm_python


def test_who_ends_while_asking_harms_nobody() -> None:
    command = warm_python("json")
    for begun in (b"", struct.pack("I", 100), struct.pack("I", 100) + b"half"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(command[-1])
            client.sendall(begun)
    told = subprocess.run([*command, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "42\n"
