"""Warm processes: they are on the host of who asks; the one that forks outlives who ends in the middle."""

from __future__ import annotations

import os
import socket
import struct
import subprocess

import pytest

from tests.helpers.warm_processes import warm_python


def test_who_ends_while_asking_harms_nobody() -> None:
    command = warm_python("json")
    for begun in (b"", struct.pack("I", 100), struct.pack("I", 100) + b"half"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(command[-1])
            client.sendall(begun)
    told = subprocess.run([*command, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "42\n"


#: Another host, with a clock of its own.
_ELSEWHERE = [
    "unshare",
    "--uts",
    "--net",
    "--ipc",
    "--mount",
    "--time",
    "--fork",
    "sh",
    "-c",
    'hostname elsewhere; "$@"',
    "sh",
]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be on another host")
def test_a_process_is_on_the_host_of_the_one_that_asks() -> None:
    names = "'uts', 'net', 'ipc', 'mnt', 'time'"
    where = f"import os; print(os.uname().nodename, *(os.readlink('/proc/self/ns/' + name) for name in ({names})))"
    here, there = (
        subprocess.run(
            [*before, *warm_python("json"), "-c", where], capture_output=True, text=True, check=True, timeout=60
        )
        for before in ([], _ELSEWHERE)
    )
    assert there.stdout.startswith("elsewhere ")
    assert not set(here.stdout.split()) & set(there.stdout.split())
