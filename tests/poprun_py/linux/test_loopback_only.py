"""Loopback only: ports of another process stay open for this host; ports that listen only there are not changed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from poprun_py.linux.loopback_only import ignore_other_hosts
from tests.helpers.mpi_jobs import PROGRAMS


@pytest.fixture
def server():
    argv = [sys.executable, str(PROGRAMS / "poprun_py/ports/echo_ports.py")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def test_this_host_is_still_served_at_ports_that_are_closed_to_others(server):
    ports = [int(word) for word in server.stdout.readline().split()]
    assert ignore_other_hosts(server.pid) == sorted(ports[:2])
    for address, port in zip(("127.0.0.1", "::1", "127.0.0.1"), ports, strict=True):
        with socket.create_connection((address, port), timeout=20) as connection:
            connection.sendall(b"hello")
            assert connection.recv(100) == b"hello"


def test_a_process_that_is_gone_has_no_ports(server):
    server.kill()
    server.wait()
    assert ignore_other_hosts(server.pid) == []


def test_a_process_that_may_not_be_looked_into_keeps_its_ports():
    assert ignore_other_hosts(1 if os.getuid() else 2) == []  # another user's; a kernel thread
