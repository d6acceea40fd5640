"""Back ends: what turns a plan into the one command that starts all supervisors."""

from __future__ import annotations

from collections.abc import Callable

from poprun_py.backends import mpich, openmpi, srun
from poprun_py.backends.start_command import Command, Request

__all__ = ["BACKENDS", "Command", "Request"]

#: Kind of MPI, or what starts processes instead of it -> the pure function that makes its command.
BACKENDS: dict[str, Callable[[Request], Command]] = {
    "mpich": mpich.command,
    "openmpi": openmpi.command,
    "slurm": srun.command,
}
