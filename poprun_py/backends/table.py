"""Back end table: the function that makes the start command, for each MPI and for Slurm."""

from __future__ import annotations

from collections.abc import Callable

from poprun_py.backends import mpich, openmpi, srun
from poprun_py.backends.start_command import StartCommand, StartRequest

#: Name of the MPI, or "slurm" -> the pure function that returns its start command.
BACKENDS: dict[str, Callable[[StartRequest], StartCommand]] = {
    "mpich": mpich.command,
    "openmpi": openmpi.command,
    "slurm": srun.command,
}
