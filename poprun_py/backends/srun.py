"""Slurm: the srun command, one step of the allocation, which passes SLURM_PROCID and a PMI to its processes."""

from __future__ import annotations

from poprun_py.backends import mpich, openmpi
from poprun_py.backends.openmpi import QUICK_START
from poprun_py.backends.start_command import StartCommand, StartRequest

#: MPI -> srun's name of the PMI through which its processes connect. Its pmi2 also supports PMI-1, MPICH's default.
_PMI = {"mpich": "pmi2", "openmpi": "pmix"}

_SHARED_MEMORY = {"mpich": mpich.SHARED_MEMORY, "openmpi": openmpi.SHARED_MEMORY}


def command(request: StartRequest) -> StartCommand:
    """Return the one ``srun`` for all supervisors, which bind the instances and handle input, output and failures."""
    cluster, kind = request.cluster, request.installation.kind
    quick = QUICK_START if kind == "openmpi" else {}
    chosen = () if "SLURM_MPI_TYPE" in request.environ else (f"--mpi={_PMI[kind]}",)
    return StartCommand(
        argv=(
            *(cluster.srun, f"--nodes={len(cluster.hosts)}", f"--ntasks={request.num_instances}"),
            *(f"--ntasks-per-node={request.per_host}", f"--nodelist={','.join(cluster.hosts)}"),
            *("--distribution=block", "--cpu-bind=none", "--mem-bind=none", "--overlap", "--oversubscribe"),
            *("--export=ALL", "--input=none", "--kill-on-bad-exit=0", "--chdir=/", *chosen),
            *(*request.extra, *request.local, *request.supervisor),
        ),
        environment={name: value for name, value in quick.items() if name not in request.environ},
        rank_variable="SLURM_PROCID",
        shared_variables=tuple(name for name in _SHARED_MEMORY[kind] if name not in request.environ),
    )
