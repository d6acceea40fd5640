"""Warm processes: they run on the host of the requesting process; the server survives clients that end early."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys

import pytest

from tests.helpers.warm_processes import warm_python


def test_a_client_that_ends_during_its_request_affects_no_other() -> None:
    command = warm_python("json")
    for begun in (b"", struct.pack("I", 100), struct.pack("I", 100) + b"half"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(command[-1])
            client.sendall(begun)
    told = subprocess.run([*command, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "42\n"


def test_a_process_and_its_client_may_end_at_the_same_moment() -> None:
    command = warm_python("json")
    endless = "import os, time; print(os.getppid(), os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen([*command, "-c", endless], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        server, forked = map(int, asking.stdout.readline().split())
        os.kill(server, signal.SIGSTOP)
        try:
            ended = os.pidfd_open(forked)
            os.kill(forked, signal.SIGKILL)
            assert select.select([ended], [], [], 20)[0]
            os.close(ended)
            asking.kill()
            asking.wait(20)
        finally:
            os.kill(server, signal.SIGCONT)
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


#: Prints at each stage of its end: its own variables, modules that it imported, exit functions of Python and of C.
_LAST_WORDS = """
import atexit, ctypes, os, sys

class Said:
    def __init__(self, text):
        self.text = text
    def __del__(self, write=os.write):
        write(1, self.text)

import colorsys
colorsys.said, said = Said(b"module "), Said(b"variable ")
atexit.register(os.write, 1, b"Python ")
libc = ctypes.CDLL(None)
libc.printf(b"C ")
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("ending", [{}, {"WARM_WHOLE_END": "1"}], ids=["short", "whole"])
@pytest.mark.parametrize("code", [0, 7])
def test_the_end_of_a_process_is_that_of_its_own_program(code: int, ending: dict[str, str]) -> None:
    environ = os.environ | ending
    alone, warm = (
        subprocess.run(
            [*python, "-c", _LAST_WORDS, str(code)], capture_output=True, check=False, timeout=60, env=environ
        )
        for python in ([sys.executable], warm_python("json", "ctypes"))
    )
    assert sorted(warm.stdout.split()) == sorted(alone.stdout.split()) == [b"C", b"Python", b"module", b"variable"]
    assert warm.stderr == alone.stderr == b""
    assert warm.returncode == alone.returncode == code


def test_streams_are_unbuffered_as_python_has_them() -> None:
    left = "import os, sys; sys.stdout.write('said'); os._exit(0)"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for options, said in (([], b""), (["-u"], b"said")):
        command = [*warm_python("json"), *options, "-c", left]
        assert subprocess.run(command, capture_output=True, check=True, timeout=60, env=environ).stdout == said
