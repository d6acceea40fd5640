"""Open MPI: started by PRRTE (5) or ORTE (4), which hand their processes OMPI_COMM_WORLD_RANK."""

from __future__ import annotations

from poprun_py.backends.command import Command, Request

__all__ = ["command"]

#: Containers run as root, which Open MPI refuses unless it is told twice.
_AS_ROOT = dict.fromkeys(
    (
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
    ),
    "1",
)

#: Probing libfabric costs a second at every start.
_QUICK_START = {"OMPI_MCA_btl": "^ofi", "OMPI_MCA_mtl": "^ofi"}

#: Ranks that share a core must not spin.
_SHARED_CORES = {"OMPI_MCA_mpi_yield_when_idle": "1"}


def command(request: Request) -> Command:
    """One ``mpirun`` for all supervisors; what the user has set in the environment stays."""
    wanted = _AS_ROOT | _QUICK_START | (_SHARED_CORES if request.oversubscribed else {})
    crowd = ("--oversubscribe",) if request.oversubscribed else ()
    return Command(
        argv=(
            *(request.installation.launcher, "--bind-to", "none", *crowd),
            *("-n", str(request.num_instances), *request.supervisor),
        ),
        environment={name: value for name, value in wanted.items() if name not in request.environ},
        rank_variable="OMPI_COMM_WORLD_RANK",
    )
