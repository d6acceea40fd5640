"""Launch plan: which instance runs where, with which replicas, environment and command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import poprun_py
from popdist_py.environment import EXECUTABLE_CACHE_PATH, OFFLINE_MODE, TRACE_FOLDER, VERBOSITY, Environment
from popdist_py.layout import device_size
from poprun_py.backends import mpich, openmpi, srun
from poprun_py.backends.start_command import StartCommand, StartRequest
from poprun_py.numa.placement import DISABLED, Placement, place
from poprun_py.numa.topology import NumaTopology
from poprun_py.options.mpi_arguments import MpiArguments, classify_arguments
from poprun_py.options.option_table import LaunchOptions
from poprun_py.site.cluster import SLURM, Cluster
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation

#: The script that mpirun starts, once per instance: -I ignores the user's PYTHON* variables, -S (no site) halves the
#: start.
SUPERVISOR_FILE = os.path.join(os.path.dirname(os.path.abspath(poprun_py.__file__)), "host", "supervisor_main.py")

#: Name of the MPI, or "slurm" -> the pure function that returns its start command.
_BACKENDS = {"mpich": mpich.command, "openmpi": openmpi.command, SLURM: srun.command}

#: Names the ssh to use instead of the one on PATH, with either MPI.
SSH_VARIABLE = "POPRUN_PY_SSH"

#: Prefixes of variables that mean nothing on another host, or that the MPI sets for each process.
LOCAL_VARIABLE_PREFIXES = (
    *("DBUS_", "DISPLAY", "HOST", "OLDPWD", "PWD", "SHLVL", "SSH_", "XAUTHORITY", "XDG_", "_"),
    *("HYDI_", "HYDRA_", "OMPI_COMM_WORLD_", "PMIX_", "PMI_", "PRTE_LAUNCHED", "SLURM_", "SLURMD_"),
)

#: Keeps the MPI's transport (UCX) from handling signals of the program: on SIGHUP it would print its state and
#: continue.
_NO_MPI_SIGNALS = {"UCX_DEBUG_SIGNO": "0"}

#: On one host the MPI's transports listen on the loopback only: UCX, and libfabric's TCP.
_LOOPBACK_ONLY = {"UCX_NET_DEVICES": "lo", "FI_TCP_IFACE": "lo"}

#: What the user's UCX_TLS names if UCX may use shared memory; without it UCX needs a network, and takes no loopback.
_UCX_SHARED_MEMORY = re.compile(r"\^|\b(all|sm|shm|mm|posix|sysv|xpmem|cma|knem)\b")

#: Libraries that would otherwise start a thread per core in every instance.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
#: Options that PopRun has and that have no effect: the field, its option, and why.
_WITHOUT_EFFECT = (
    ("synchronise_python_venv", "every host needs the virtual environment at the same path"),
    ("synchronise_poplar_sdk", "there is no SDK to copy"),
    ("distribute_ssh_key", "distribute the keys yourself"),
)
#: Placements that bind instances to NUMA nodes.
_BY_NODE = ("spreadnuma", "roundrobin")


@dataclass(frozen=True)
class Instance:
    """One process of the job; ``environment`` is added to what it inherits."""

    index: int
    host: str
    local_index: int
    replicas: range
    environment: dict[str, str]
    placement: Placement | None = None  # None on other hosts, which determine it themselves

    @property
    def replica_text(self) -> str:
        first, last = self.replicas[0], self.replicas[-1]
        return f"replica {first}" if first == last else f"replicas {first}-{last}"


@dataclass(frozen=True)
class LaunchPlan:
    """Everything that starting the job needs; ``unset`` names variables that the instances must not inherit."""

    program: tuple[str, ...]
    executable: str
    cwd: str
    instances: tuple[Instance, ...]
    unset: tuple[str, ...]
    installation: MpiInstallation
    command: StartCommand
    instances_per_host: int = 1
    placement: str = "spreadnuma"  # a key of placement.STRATEGIES
    threads: tuple[str, ...] = ()  # variables that each host sets to its number of CPUs per instance
    remote_hosts: tuple[str, ...] = ()
    network: str = ""  # subnet for the traffic between hosts
    notes: tuple[str, ...] = ()
    closes_ports: bool = False  # no other host has anything to say to the command

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
    """Make the plan; nothing is read, started or written."""
    cluster = cluster or Cluster()
    starter = SLURM if cluster.starter == SLURM else installation.kind
    arguments = classify_arguments(options, starter=starter, environ=machine.environ)
    variables = {*machine.environ, *dict(options.assignments), *(arguments.environment or {})}
    threads = tuple(name for name in THREAD_VARIABLES if name not in variables)
    per_host = options.num_instances // max(1, len(cluster.hosts))
    strategy = placement_strategy(options)
    shared = (carried_environment(machine.environ) if cluster.hosts else {}) | (
        _mpi_environment(installation, machine.environ, alone=not cluster.hosts)
        | execution_environment(options, cwd=machine.cwd)
    )
    instances = tuple(
        _instance(index, options, machine, cluster, per_host, strategy, threads, shared, arguments)
        for index in range(options.num_instances)
    )
    request = _request(options, machine, installation, cluster, arguments)
    remote = tuple(host for host in cluster.hosts if not cluster.is_here(host))
    elsewhere = remote or starter == SLURM or any("host" in word for word in (*request.extra, *request.local))
    command = _BACKENDS[starter](request)
    return LaunchPlan(
        program=options.program,
        executable=executable,
        cwd=machine.cwd,
        instances=instances,
        unset=(*(("MPI4PY_MPIABI",) if installation.library else ()), *command.unset),
        installation=installation,
        command=command,
        instances_per_host=per_host,
        placement=strategy,
        threads=threads,
        remote_hosts=remote,
        network=cluster.network,
        notes=(
            *arguments.notes,
            *notes(
                options,
                machine.topology if len(remote) < max(1, len(cluster.hosts)) else None,
                mpi=starter,
                strategy=strategy,
                hosts=max(1, len(cluster.hosts)),
                per_host=per_host,
            ),
        ),
        closes_ports=not elsewhere,
    )


def _request(
    options: LaunchOptions,
    machine: Machine,
    installation: MpiInstallation,
    cluster: Cluster,
    arguments: MpiArguments,
) -> StartRequest:
    return StartRequest(
        installation,
        options.num_instances,
        machine.cpus,
        (machine.python, "-I", "-S", SUPERVISOR_FILE),
        machine.environ,
        cluster,
        extra=arguments.everywhere,
        local=arguments.local,
        ssh=machine.environ.get(SSH_VARIABLE, ""),
        as_root=options.allow_run_as_root,
    )


def _instance(
    index: int,
    options: LaunchOptions,
    machine: Machine,
    cluster: Cluster,
    per_host: int,
    strategy: str,
    threads: Sequence[str],
    shared: Mapping[str, str],
    arguments: MpiArguments,
) -> Instance:
    """Return one instance, with the environment that all share, then its own, then what the user gave."""
    host = cluster.hosts[index // per_host] if cluster.hosts else machine.name
    local = index % per_host
    placement = None
    if machine.topology and (not cluster.hosts or cluster.is_here(host)):
        placement = place(machine.topology, strategy, index=local, count=per_host)
    identity = Environment.of_instance(
        options.layout, index, ipus_per_replica=options.ipus_per_replica, local_instance_index=local
    )
    counts = dict.fromkeys(threads, str(placement.threads)) if placement else {}
    own = identity.to_environ() | counts | arguments.environment_of(index) | dict(options.assignments)
    return Instance(index, host, local, options.layout.replicas(index), {**shared, **own}, placement)


def placement_strategy(options: LaunchOptions) -> str:
    """Return a key of placement.STRATEGIES: of --process-placement, else of the older --numa-aware."""
    if options.numa_aware is None or "process_placement" in options.explicit:
        return options.process_placement
    return "roundrobin" if options.numa_aware else DISABLED


def carried_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what instances on other hosts get of the user's environment: all but what belongs to this host."""
    return {name: value for name, value in environ.items() if not name.startswith(LOCAL_VARIABLE_PREFIXES)}


def _mpi_environment(installation: MpiInstallation, environ: Mapping[str, str], *, alone: bool) -> dict[str, str]:
    """Variables by which mpi4py loads the installation's own library, rather than any with the same ABI.

    ``alone``: all instances are on this host.
    """
    library = {"MPI4PY_LIBMPI": installation.library} if installation.library else {}
    needs_network = not _UCX_SHARED_MEMORY.search(environ.get("UCX_TLS", "all"))
    defaults = _NO_MPI_SIGNALS | (_LOOPBACK_ONLY if alone and not needs_network else {})
    return library | {name: value for name, value in defaults.items() if name not in environ}


def execution_environment(options: LaunchOptions, *, cwd: str) -> dict[str, str]:
    """Return the variables that options set: folders for executables and traces, offline mode, verbosity."""
    environment = {}
    if options.executable_cache_path:
        environment[EXECUTABLE_CACHE_PATH] = os.path.normpath(os.path.join(cwd, options.executable_cache_path))
    if options.trace:
        environment[TRACE_FOLDER] = os.path.normpath(os.path.join(cwd, options.trace))
    if options.offline_mode:
        environment[OFFLINE_MODE] = "1"
    if options.verbosity:
        environment[VERBOSITY] = str(options.verbosity)
    return environment


def notes(
    options: LaunchOptions, topology: NumaTopology | None, *, mpi: str, strategy: str, hosts: int, per_host: int
) -> Iterator[str]:
    """Return the notes on a job with ``per_host`` instances on each of ``hosts``, placed by ``strategy``.

    ``mpi`` is what starts it: mpich, openmpi or slurm.
    ``topology`` is that of this host, if it is known and takes part.
    """
    for field, why in _WITHOUT_EFFECT:
        if getattr(options, field):
            yield f"--{field.replace('_', '-')} has no effect: {why}"
    if not options.allow_run_as_root and mpi != "openmpi":
        yield f"--allow-run-as-root no has no effect: {mpi} runs for every user"
    width = options.ipus // options.num_instances
    if width != device_size(width) and not options.offline_mode:
        yield (
            f"{options.num_replicas // options.num_instances} replicas of {_ipus(options.ipus_per_replica)} need "
            f"{_ipus(width)} in each instance, but a device has a power of two: each gets a device of "
            f"{device_size(width)}, of which {device_size(width) - width} idle"
        )
    if options.ilds > hosts:
        yield (
            f"{options.ilds} IPU-Link domains over {hosts} host{'s' * (hosts > 1)}: each is a Pod of its own, which "
            f"needs at least one host; it runs emulated, but real Pods need --host with {options.ilds} hosts"
        )
    nodes = len(topology.nodes) if topology and strategy in _BY_NODE else per_host
    if 1 < nodes < per_host:
        yield (
            f"{per_host} instances on a host of {nodes} NUMA nodes: some share a node and its memory bandwidth; use "
            f"--num-instances {nodes * hosts}, or --process-placement spreadcore"
        )


def _ipus(count: int) -> str:
    return f"{count} IPU{'s' * (count > 1)}"
