"""Slurm: started by srun as one step of the allocation, which hands its processes SLURM_PROCID and a PMI."""

from __future__ import annotations

from poprun_py.backends.command import Command, Request

__all__ = ["command"]

#: How the processes of each MPI find each other: the name that srun has for it.
_PMI = {"mpich": "pmi2", "openmpi": "pmix"}

#: MPICH speaks version 1 unless it is told.
_PMI_VERSION = {"mpich": {"MPIR_CVAR_PMI_VERSION": "2"}}


def command(request: Request) -> Command:
    """One ``srun`` for all supervisors, in blocks; they bind the instances and handle input, output and failures."""
    cluster, kind = request.cluster, request.installation.kind
    chosen = () if "SLURM_MPI_TYPE" in request.environ else (f"--mpi={_PMI[kind]}",)
    return Command(
        argv=(
            *(cluster.srun, f"--nodes={len(cluster.hosts)}", f"--ntasks={request.num_instances}"),
            *(f"--ntasks-per-node={request.per_host}", f"--nodelist={','.join(cluster.hosts)}"),
            *("--distribution=block", "--cpu-bind=none", "--mem-bind=none", "--overlap", "--oversubscribe"),
            *("--export=ALL", "--input=none", "--kill-on-bad-exit=0", "--chdir=/", *chosen),
            *(*request.extra, *request.local, *request.supervisor),
        ),
        environment={
            name: value for name, value in _PMI_VERSION.get(kind, {}).items() if name not in request.environ
        },
        rank_variable="SLURM_PROCID",
    )
