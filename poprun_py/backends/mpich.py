"""MPICH: the mpirun command of MPICH's hydra, which passes PMI_RANK and an open socket (PMI_FD) to its processes."""

from __future__ import annotations

import os
from pathlib import Path

from poprun_py.backends.start_command import StartCommand, StartRequest

#: The folder of the shared memory of UCX; that of MPICH itself cannot be chosen.
SHARED_MEMORY = ("UCX_POSIX_DIR",)

#: Names the file with the host's topology that MPI_Init reads. If it is unset, hydra writes one in /tmp, which
#: remains if hydra is killed before it is listed; if it is empty, each MPI_Init queries the kernel instead.
TOPOLOGY_FILE = "HWLOC_XMLFILE"

#: The program that hydra runs to reach other hosts, unless the user has set one.
_LAUNCHER = "HYDRA_LAUNCHER_EXEC"

#: Sets TOPOLOGY_FILE on other hosts.
_SSH = Path(__file__).with_name("hydra_ssh.sh")

#: With more CPUs than this, asking the kernel takes long if all instances do so at once.
_MANY_CPUS = 64

#: Start on this host by fork, even inside the allocation of a batch system.
_HERE = ("-hosts", "localhost", "-launcher", "fork")


def command(request: StartRequest) -> StartCommand:
    """Return the one ``mpirun`` for all supervisors; hydra neither binds processes nor counts cores by default."""
    hosts = _on_hosts(request) if request.cluster.hosts else _HERE
    topology = {} if TOPOLOGY_FILE in request.environ or request.cpus > _MANY_CPUS else {TOPOLOGY_FILE: ""}
    ssh = str(_SSH) if topology and os.access(_SSH, os.X_OK) else request.ssh
    if _LAUNCHER in request.environ and not request.ssh:
        ssh = ""
    count = ("-n", str(request.num_instances))
    return StartCommand(
        argv=(request.installation.launcher, *hosts, *request.extra, *count, *request.local, *request.supervisor),
        environment=topology | ({_LAUNCHER: ssh} if ssh and request.cluster.hosts else {}),
        rank_variable="PMI_RANK",
        unset=tuple(topology),
        shared_variables=tuple(name for name in SHARED_MEMORY if name not in request.environ),
    )


def _on_hosts(request: StartRequest) -> tuple[str, ...]:
    """Blocks of instances over ssh; the supervisor changes to the folder of the job, and reports if it cannot."""
    cluster = request.cluster
    interface = ("-iface", cluster.interface) if cluster.interface else ()
    hosts = ("-hosts", ",".join(cluster.hosts), "-ppn", str(request.per_host))
    return ("-launcher", "ssh", *hosts, *interface, "-wdir", "/")
