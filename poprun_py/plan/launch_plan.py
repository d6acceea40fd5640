"""Plan: which instance runs where, with which replicas, environment and command; decided before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from popdist_py.environment import Environment
from poprun_py.backends import BACKENDS, Command, Request
from poprun_py.host import supervisor_main
from poprun_py.host.supervisor import RANK_VARIABLE
from poprun_py.host.supervisor_main import PATH_VARIABLE
from poprun_py.numa.placement import DISABLED, Placement, place
from poprun_py.options.mpi_arguments import sorted_words
from poprun_py.options.option_table import LaunchOptions
from poprun_py.plan.execution_environment import execution_environment
from poprun_py.site.cluster import SLURM, Cluster
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation
from poprun_py.wire.channel import ADDRESS_VARIABLE, KEY_VARIABLE

__all__ = ["SUPERVISOR_FILE", "Instance", "LaunchPlan", "plan"]

#: What mpirun starts, once per instance; see host/supervisor_main.py.
SUPERVISOR_FILE = supervisor_main.__file__

#: What the supervisors need to find their launcher.
SUPERVISOR_VARIABLES = (ADDRESS_VARIABLE, KEY_VARIABLE, PATH_VARIABLE, RANK_VARIABLE)

#: Names an ssh to use instead of the one on PATH, for either MPI.
SSH_VARIABLE = "POPRUN_PY_SSH"

#: Beginnings of the names of variables that mean nothing on another host, or that the MPI sets for each process.
LOCAL_VARIABLES = (
    *("DBUS_", "DISPLAY", "HOST", "OLDPWD", "PWD", "SHLVL", "SSH_", "XAUTHORITY", "XDG_", "_"),
    *("HYDI_", "HYDRA_", "OMPI_COMM_WORLD_", "PMIX_", "PMI_", "PRTE_LAUNCHED", "SLURM_", "SLURMD_"),
)

#: What keeps an MPI from dealing with signals that are the program's.
_QUIET_MPI = {"UCX_DEBUG_SIGNO": "0"}

#: Libraries that would otherwise start a thread per core in every instance.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Instance:
    """One process of the job; ``environment`` is added to what it inherits."""

    index: int
    host: str
    local_index: int
    replicas: range
    environment: dict[str, str]
    placement: Placement | None = None  # where the host is this one; other hosts find it themselves

    @property
    def replica_text(self) -> str:
        first, last = self.replicas[0], self.replicas[-1]
        return f"replica {first}" if first == last else f"replicas {first}-{last}"


@dataclass(frozen=True)
class LaunchPlan:
    """All that is going to happen; ``unset`` names what the instances must not inherit."""

    program: tuple[str, ...]
    executable: str
    cwd: str
    instances: tuple[Instance, ...]
    unset: tuple[str, ...]
    installation: MpiInstallation
    command: Command
    instances_per_host: int = 1
    placement: str = "spreadnuma"  # a name of placement.STRATEGIES
    threads: tuple[str, ...] = ()  # variables that each host sets to its number of CPUs per instance
    remote_hosts: tuple[str, ...] = ()
    network: str = ""  # subnet for the traffic between hosts
    notes: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(instance.host for instance in self.instances))


def plan(
    options: LaunchOptions,
    *,
    machine: Machine,
    installation: MpiInstallation,
    executable: str,
    cluster: Cluster | None = None,
) -> LaunchPlan:
    """Decide everything; nothing is read, started or written."""
    cluster = cluster or Cluster()
    kind = SLURM if cluster.starter == SLURM else installation.kind
    words = sorted_words(options, kind=kind, environ=machine.environ)
    given = dict(options.assignments)
    threads = tuple(
        name for name in THREAD_VARIABLES if name not in {*machine.environ, *given, *(words.environment or {})}
    )
    per_host = options.num_instances // max(1, len(cluster.hosts))
    carried = carried_environment(machine.environ) if cluster.hosts else {}
    shared = (
        carried | _mpi_environment(installation, machine.environ) | execution_environment(options, cwd=machine.cwd)
    )
    strategy = placement_strategy(options)
    instances = []
    for index in range(options.num_instances):
        host = cluster.hosts[index // per_host] if cluster.hosts else machine.name
        local = index % per_host
        placement = None
        if machine.topology and (not cluster.hosts or cluster.is_here(host)):
            placement = place(machine.topology, strategy, index=local, count=per_host)
        identity = Environment.of_instance(
            options.layout, index, ipus_per_replica=options.ipus_per_replica, local_instance_index=local
        )
        known = dict.fromkeys(threads, str(placement.threads)) if placement else {}
        environment = shared | identity.to_environ() | known | words.environment_of(index) | given
        instances.append(Instance(index, host, local, options.layout.replicas(index), environment, placement))
    request = Request(
        installation,
        options.num_instances,
        machine.cpus,
        _supervisor(machine.python),
        machine.environ,
        cluster,
        extra=words.everywhere,
        local=words.local,
        ssh=machine.environ.get(SSH_VARIABLE, ""),
        as_root=options.allow_run_as_root,
        forwarded=SUPERVISOR_VARIABLES,
    )
    return LaunchPlan(
        program=options.program,
        executable=executable,
        cwd=machine.cwd,
        instances=tuple(instances),
        unset=("MPI4PY_MPIABI",) if installation.library else (),
        installation=installation,
        command=BACKENDS[kind](request),
        instances_per_host=per_host,
        placement=strategy,
        threads=threads,
        remote_hosts=tuple(host for host in cluster.hosts if not cluster.is_here(host)),
        network=cluster.network,
        notes=words.notes,
    )


def placement_strategy(options: LaunchOptions) -> str:
    """A name of placement.STRATEGIES; the old --numa-aware counts where --process-placement is not given."""
    if options.numa_aware is None or "process_placement" in options.given:
        return options.process_placement
    return "roundrobin" if options.numa_aware else DISABLED


def carried_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What instances on other hosts get of the user's environment: all but what belongs to this host or process."""
    return {name: value for name, value in environ.items() if not name.startswith(LOCAL_VARIABLES)}


def _supervisor(python: str) -> tuple[str, ...]:
    """Isolated from the user's PYTHON* variables, and without site: it starts in half the time."""
    return (python, "-I", "-S", SUPERVISOR_FILE)


def _mpi_environment(installation: MpiInstallation, environ: Mapping[str, str]) -> dict[str, str]:
    """mpi4py loads this very library; naming the ABI instead would load whichever is found.

    And the MPI's transport (UCX) must not answer SIGHUP by printing its state, for the program would outlive it.
    """
    library = {"MPI4PY_LIBMPI": installation.library} if installation.library else {}
    return library | {name: value for name, value in _QUIET_MPI.items() if name not in environ}
