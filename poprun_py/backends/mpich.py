"""MPICH: started by hydra, which hands its processes PMI_RANK and an open socket (PMI_FD)."""

from __future__ import annotations

from poprun_py.backends.command import Command, Request

__all__ = ["command"]

#: Start on this machine by fork, also inside the allocation of a batch system.
_HERE = ("-hosts", "localhost", "-launcher", "fork")


def command(request: Request) -> Command:
    """One ``mpirun`` for all supervisors; hydra binds nothing and counts no cores by itself."""
    return Command(
        argv=(request.installation.launcher, *_HERE, "-n", str(request.num_instances), *request.supervisor),
        environment={},
        rank_variable="PMI_RANK",
    )
