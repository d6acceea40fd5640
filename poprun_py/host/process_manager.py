"""Process manager: the MPI process that started a supervisor, if it can be identified with certainty.

If it dies while the supervisor starts, the process that adopts orphans appears as the parent: init, the user's
systemd, the shell of a container. These do not belong to the job, and are never signalled.
"""

from __future__ import annotations

import signal
import time

from poprun_py.linux import processes

#: Prefixes of the commands that start the processes of an MPI.
_NAMES = ("hydra", "mpiexec", "mpirun", "orte", "prte")

#: The command that starts the processes of srun.
_SLURM = ("slurmstepd",)

#: Seconds within which a killed process has ended.
_KILLED = 2.0


class ProcessManager:
    """``pid`` is 0 if it is not known. ``slurm``: srun has started the supervisor."""

    def __init__(self, pid: int, *, slurm: bool = False) -> None:
        self._ticks = processes.start_ticks(pid)
        self._is_slurm = slurm
        self.pid = pid if processes.command(pid).startswith(_SLURM if slurm else _NAMES) else 0

    @property
    def is_alive(self) -> bool:
        """Whether it is known and still running; its pid may have been reused by another process."""
        return self.pid > 0 and processes.is_alive(self.pid) and processes.start_ticks(self.pid) == self._ticks

    @property
    def is_ending(self) -> bool:
        """Whether it is known, and exiting or gone."""
        return self.pid > 0 and (not self.is_alive or processes.is_ending(self.pid))

    @property
    def ends_groups(self) -> bool:
        """Whether it sends its signals to the whole process group of each process that it has started."""
        return self.pid > 0 and not self._is_slurm

    def family(self) -> list[int]:
        """Return its pid and those of its descendants."""
        return [self.pid, *processes.descendants(self.pid)] if self.is_alive else []

    def outlive(self, timeout: float) -> None:
        """Wait until it has ended; kill it after ``timeout`` seconds."""
        end = time.monotonic() + timeout
        while self.is_alive and time.monotonic() < end + _KILLED:
            if time.monotonic() > end:
                processes.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)
