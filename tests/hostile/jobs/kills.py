"""Kills: any process of a job dies at any moment of any phase, on one host and on two, with both MPIs."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tests.helpers.network_namespaces as namespaces
from tests.helpers.mpi_jobs import OPENMPI
from tests.hostile.jobs.leftovers import Leftovers
from tests.hostile.kind import Trial, Unavailable
from tests.poprun_py.helpers import random_kills, several_hosts

__all__ = ["PROMISED", "kills_on_one_host", "kills_on_two_hosts", "mpi_named"]

#: Seconds within which all processes must be gone: about two on an idle machine, but many trials run at once.
PROMISED = 30.0


@contextmanager
def kills_on_one_host(mpi: str) -> Iterator[Trial]:
    """Kill processes of one job after the other."""
    mpirun = mpi_named(mpi)

    def trial(dice: random.Random) -> list[str]:
        kill = random_kills.kill_one(mpirun, dice, promised=PROMISED)
        return [*kill.faults, str(kill)] if kill.faults else []

    yield trial


@contextmanager
def kills_on_two_hosts(mpi: str) -> Iterator[Trial]:
    """The same with instances on two hosts, which are network namespaces with an sshd each."""
    mpirun = mpi_named(mpi)
    if namespaces.unavailable:
        raise Unavailable(f"network namespaces: {namespaces.unavailable}")
    os.makedirs("/run/sshd", exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, namespaces.hosts(2, Path(folder)) as where:

        def trial(dice: random.Random) -> list[str]:
            role = dice.choice(["launcher", *several_hosts.ROLES])
            left = Leftovers()
            death = several_hosts.kill_one(where, mpirun, role, dice, met=dice.random() < 0.6, promised=PROMISED)
            if left.files():  # the next launch removes files that no process was left to remove
                several_hosts.Job(where, ["--mpi", mpirun, "true"]).finish()
            faults = [*death.faults, *left.files()]
            return [*faults, f"{death.role}: code {death.code}, said {death.said!r}"] if faults else []

        yield trial


def mpi_named(name: str) -> str:
    """The value of ``--mpi`` for "mpich" or "openmpi"; raise Unavailable if it is not installed."""
    if name == "mpich":
        return str(random_kills.BIN / "mpirun")
    if not OPENMPI.mpirun.exists():
        raise Unavailable(f"{OPENMPI.mpirun} is absent; scripts/test makes it")
    return str(OPENMPI.mpirun.parents[1])
