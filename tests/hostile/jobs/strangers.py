"""Strangers: foreign connections to every port of a job, which send nothing, nonsense, or too much.

The launcher must not be affected. Ports of the MPIs, which authenticate no peer, may end the job, but not silently
and not with a wrong result. Open connections may delay the job: PRRTE and PMIx wait for the rest of a message.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.hostile.jobs.kills import mpi_named
from tests.hostile.jobs.outcome import RunningJob
from tests.hostile.kind import Trial

__all__ = ["strangers"]

_LISTENING = "0A"

#: Seconds after which the foreign connections are closed.
_STAY = 10.0

#: Behaviours that must not affect any port.
_QUIET = ("silent", "gone", "reset")
_RUDE = ("random", "http", "drip", "flood", "zeros", "frame")


@contextmanager
def strangers(mpi: str) -> Iterator[Trial]:
    mpirun = mpi_named(mpi)

    def trial(dice: random.Random) -> list[str]:
        behaviours = dice.choices([*_QUIET, *_RUDE], k=3)
        of_launcher_only = dice.random() < 0.6
        job = RunningJob(mpirun, rounds=dice.choice([10, 300]))
        crowd = _Crowd(behaviours, job.process.pid if of_launcher_only else 0, dice)
        leave = threading.Timer(_STAY, crowd.stop)
        try:
            crowd.start()
            leave.start()
            harmless = of_launcher_only or not set(behaviours) & set(_RUDE)
            faults = job.faults(must_succeed=harmless)
        finally:
            leave.cancel()
            crowd.stop()
        whom = "the launcher's ports" if of_launcher_only else "all ports"
        return [f"{behaviours} at {whom}; {crowd.connections} connections", *faults] if faults else []

    yield trial


class _Crowd:
    """Connects to all ports that are open (of process ``pid`` only, if given) until it is stopped."""

    def __init__(self, behaviours: list[str], pid: int, dice: random.Random) -> None:
        self.connections = 0
        self._behaviours, self._pid = behaviours, pid
        self._nonsense = dice.randbytes(1 << 16)
        self._over = threading.Event()
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._disturb)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        for stream in self._open:
            stream.close()

    def _disturb(self) -> None:
        met = dict[tuple[str, int], int]()
        while not self._over.wait(0.01):
            for place in listening(self._pid):
                if met.get(place, 0) < 40:  # the peers of a port must find it too
                    met[place] = met.get(place, 0) + 1
                    with suppress(OSError):
                        self._visit(place, self._behaviours[met[place] % len(self._behaviours)])

    def _visit(self, place: tuple[str, int], behaviour: str) -> None:
        connection = socket.create_connection(place, timeout=1)
        connection.settimeout(0.05)
        self.connections += 1
        self._open.append(connection)
        match behaviour:
            case "gone":
                connection.close()
            case "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
            case "random":
                connection.sendall(self._nonsense[:64] * (1 + self.connections % 3))
            case "http":
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            case "drip":
                for place_in_it in range(3):
                    connection.sendall(self._nonsense[place_in_it : place_in_it + 1])
                    time.sleep(0.005)
            case "flood":
                with suppress(TimeoutError):
                    for _ in range(64):
                        connection.sendall(self._nonsense)
            case "zeros":
                connection.sendall(bytes(4096))
            case "frame":
                connection.sendall((1 << 22).to_bytes(4, "big") + self._nonsense[:4096])


def listening(pid: int = 0) -> list[tuple[str, int]]:
    """The address and port of every socket that waits for connections here (in process ``pid``, if given)."""
    own = _sockets(pid) if pid else None
    ports = []
    for table, local in (("/proc/net/tcp", "127.0.0.1"), ("/proc/net/tcp6", "::1")):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and (own is None or fields[9] in own):
                ports.append((local, int(fields[1].rpartition(":")[2], 16)))
    return ports


def _sockets(pid: int) -> set[str]:
    """The inodes of the sockets of a process."""
    inodes = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                inodes.add(os.readlink(f"/proc/{pid}/fd/{name}").removeprefix("socket:[").removesuffix("]"))
    return inodes
