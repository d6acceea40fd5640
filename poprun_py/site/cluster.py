"""Cluster: the hosts of a job, and the command that starts processes on them.

--host, --hostfile               the hosts named, over ssh (or with srun if all belong to the Slurm allocation)
inside a Slurm allocation        its hosts, with srun
otherwise                        this host
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from poprun_py.errors import UsageError
from poprun_py.options.host_list import Host, expanded, from_file, from_list, names_here
from poprun_py.options.mpi_arguments import tcp_network
from poprun_py.options.option_table import LaunchOptions

#: The command that starts the supervisors: an MPI's mpirun, or srun.
MPI, SLURM = "mpi", "slurm"


@dataclass(frozen=True)
class Cluster:
    """The hosts; ``hosts`` is empty if everything runs on this host, whose own name is ``nodename``.

    ``interface`` is this host's interface in ``network``, if --host-subnet was given.
    """

    hosts: tuple[str, ...] = ()
    starter: str = MPI
    nodename: str = "localhost"
    srun: str = ""
    interface: str = ""
    network: str = ""

    def is_here(self, host: str) -> bool:
        """Whether ``host`` is a name of this host."""
        return host in names_here(self.nodename)


def find_cluster(options: LaunchOptions, *, environ: Mapping[str, str], nodename: str) -> Cluster:
    """Determine the hosts, and check that the instances can be divided among them; raise UsageError."""
    allocation = _allocation(environ)
    hosts = _given_hosts(options)
    source = "--host" if options.host else "--hostfile"
    if not hosts and allocation:
        hosts, source = tuple(map(Host, allocation.hosts)), "the Slurm allocation"
    mistakes = [*_division_mistakes(options, hosts, source), *_slot_mistakes(options, hosts, source)]
    if mistakes:
        raise UsageError(mistakes)
    names = tuple(host.name for host in hosts)
    if options.backend == SLURM and allocation is None:
        raise UsageError([f"--backend slurm: there is no Slurm allocation ({_missing_allocation(environ)})"])
    starter = _starter(options, names, allocation, nodename)
    alone = starter == MPI and (not names or (len(names) == 1 and names[0] in _local_names(nodename, names[0])))
    if alone:
        return Cluster(nodename=nodename)
    srun = allocation.srun if allocation and starter == SLURM else ""
    if starter == SLURM and not srun:
        raise UsageError(
            ["--backend slurm: there is no srun on PATH; use --backend mpi, which needs ssh to the hosts"]
        )
    interface, network = _subnet(options)
    return Cluster(names, starter, nodename, srun, interface, network)


def _given_hosts(options: LaunchOptions) -> tuple[Host, ...]:
    if options.host is not None:
        return from_list(options.host, source=f"--host {options.host}")
    if options.host_file is not None:
        return from_file(options.host_file, source=f"--hostfile {options.host_file}")
    return ()


def _division_mistakes(options: LaunchOptions, hosts: tuple[Host, ...], source: str) -> list[str]:
    count, instances = len(hosts), options.num_instances
    if count < 2 or instances % count == 0:
        return []
    wrong = (
        "there are fewer instances than hosts" if instances < count else f"{instances} is not divisible by {count}"
    )
    below = instances // count * count
    fitting = f"--num-instances {below} or {below + count}" if below else f"--num-instances {count}"
    return [f"--num-instances {instances} over the {count} hosts of {source}: {wrong}; use {fitting}, or other hosts"]


def _slot_mistakes(options: LaunchOptions, hosts: tuple[Host, ...], source: str) -> list[str]:
    share = options.num_instances // max(1, len(hosts))
    return [
        f"{source}: {host.name} has {host.slots} slot{'s' * (host.slots > 1)}, but would get {share} of "
        f"{options.num_instances} instances on {len(hosts)} host{'s' * (len(hosts) > 1)}; "
        "name more hosts, or use fewer instances"
        for host in hosts
        if host.slots is not None and share > host.slots
    ]


def _starter(options: LaunchOptions, names: tuple[str, ...], allocation: _Allocation | None, nodename: str) -> str:
    """The command of the job: srun if requested, or if other hosts of the allocation take part; else mpirun."""
    if options.backend == SLURM and allocation is not None:
        outside = [name for name in names if name not in allocation.hosts]
        if outside:
            raise UsageError(
                [
                    f"--backend slurm: {', '.join(outside)} does not belong to the allocation "
                    f"({', '.join(allocation.hosts)}); leave out --host, or name some of these"
                ]
            )
        return SLURM
    remote = any(name not in names_here(nodename) for name in names)
    if options.backend == "auto" and allocation and remote and set(names) <= set(allocation.hosts):
        return SLURM if allocation.srun else MPI
    return MPI


def _local_names(nodename: str, name: str) -> frozenset[str]:
    """This host's names, and its addresses when ``name`` is one."""
    if not name.replace(".", "").isdigit():
        return names_here(nodename)
    from poprun_py.site.network import interfaces  # few users name hosts by address

    return names_here(nodename) | {interface.address for interface in interfaces()}


def _subnet(options: LaunchOptions) -> tuple[str, str]:
    """This host's interface and its network: of --host-subnet, else of Open MPI's options; empty: none."""
    openmpi_network = tcp_network((*options.mpi_global_args, *options.mpi_local_args))
    if options.host_subnet is None and openmpi_network is None:
        return "", ""
    from poprun_py.site.network import interfaces, subnet_named  # few users name a subnet

    known = interfaces()
    requested = options.host_subnet or next(
        (interface.name for interface in known if openmpi_network in (interface.name, interface.network)), None
    )
    if requested is None:
        return "", ""
    subnet = subnet_named(requested, known)
    return subnet.name, subnet.network


_JOB = ("SLURM_JOB_ID", "SLURM_JOBID")
_HOSTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")


@dataclass(frozen=True)
class _Allocation:
    """The hosts that Slurm has allocated to a job, and the srun on PATH, empty if there is none."""

    hosts: tuple[str, ...]
    srun: str


def _allocation(environ: Mapping[str, str]) -> _Allocation | None:
    """Return the allocation of this process, if there is one; raise UsageError if its host list is malformed."""
    job, hosts = (next(filter(None, map(environ.get, names)), None) for names in (_JOB, _HOSTS))
    if not job or not hosts:
        return None
    from shutil import which  # slow to import

    try:
        return _Allocation(expanded(hosts), which("srun", path=environ.get("PATH")) or "")
    except ValueError as error:
        raise UsageError([f"SLURM_JOB_NODELIST={hosts}: {error}; name the hosts with --host"]) from None


def _missing_allocation(environ: Mapping[str, str]) -> str:
    """The message about a missing variable of an allocation, with advice."""
    for names, advice in ((_JOB, "use salloc or sbatch"), (_HOSTS, "it names the hosts; see sbatch")):
        if not any(map(environ.get, names)):
            return f"{names[0]} is not set; {advice}"
    return ""
