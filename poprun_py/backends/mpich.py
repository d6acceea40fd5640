"""MPICH: the mpirun command of MPICH's hydra, which passes PMI_RANK and an open socket (PMI_FD) to its processes."""

from __future__ import annotations

from poprun_py.backends.start_command import StartCommand, StartRequest

__all__ = ["SHARED_MEMORY", "command"]

#: The folder of the shared memory of UCX; that of MPICH itself cannot be chosen.
SHARED_MEMORY = ("UCX_POSIX_DIR",)

#: Start on this host by fork, even inside the allocation of a batch system.
_HERE = ("-hosts", "localhost", "-launcher", "fork")


def command(request: StartRequest) -> StartCommand:
    """Return the one ``mpirun`` for all supervisors; hydra neither binds processes nor counts cores by default."""
    hosts = _on_hosts(request) if request.cluster.hosts else _HERE
    count = ("-n", str(request.num_instances))
    return StartCommand(
        argv=(request.installation.launcher, *hosts, *request.extra, *count, *request.local, *request.supervisor),
        environment={"HYDRA_LAUNCHER_EXEC": request.ssh} if request.ssh and request.cluster.hosts else {},
        rank_variable="PMI_RANK",
        shared_variables=tuple(name for name in SHARED_MEMORY if name not in request.environ),
    )


def _on_hosts(request: StartRequest) -> tuple[str, ...]:
    """Blocks of instances over ssh; the supervisor changes to the folder of the job, and reports if it cannot."""
    cluster = request.cluster
    interface = ("-iface", cluster.interface) if cluster.interface else ()
    hosts = ("-hosts", ",".join(cluster.hosts), "-ppn", str(request.per_host))
    return ("-launcher", "ssh", *hosts, *interface, "-wdir", "/")
