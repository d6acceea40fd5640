"""Plan: which instance runs where, with which replicas, environment and command; decided before anything starts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from popdist_py.environment import Environment
from poprun_py.backends import BACKENDS, Command, Request
from poprun_py.machine import Machine
from poprun_py.mpi import MpiInstallation
from poprun_py.options import LaunchOptions
from poprun_py.topology import topology_table

__all__ = ["SUPERVISOR_FILE", "Instance", "LaunchPlan", "plan"]

#: What mpirun starts, once per instance; see supervise.py.
SUPERVISOR_FILE = __file__.removesuffix("plan.py") + "supervise.py"

#: Libraries that would otherwise start a thread per core in every instance.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Instance:
    """One process of the job; ``environment`` is added to what it inherits."""

    index: int
    host: str
    local_index: int
    replicas: range
    environment: Mapping[str, str]

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

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(instance.host for instance in self.instances))

    def topology(self) -> str:
        """The table of --print-topology."""
        spans = [(str(instance.index), len(instance.replicas)) for instance in self.instances]
        hosts = [
            (host, sum(len(instance.replicas) for instance in self.instances if instance.host == host))
            for host in self.hosts
        ]
        return topology_table(hosts=hosts, ilds=[("0", sum(span for _, span in spans))], instances=spans)

    def __str__(self) -> str:
        """What --dry-run prints."""
        command = " ".join([*_assignments(self.command.environment), shlex.join(self.command.argv)])
        lines = [
            f"program    {shlex.join(self.program)}",
            f"runs       {self.executable}",
            f"in         {self.cwd}",
            f"MPI        {self.installation.kind}, library {self.installation.library or 'unknown'}",
            f"command    {command}",
        ]
        for instance in self.instances:
            lines.append(
                f"instance {instance.index} on {instance.host}, {instance.replica_text}, "
                f"offset {instance.replicas[0]}"
            )
            lines += [f"    {text}" for text in _assignments(instance.environment)]
        return "\n".join(lines) + "\n"


def plan(options: LaunchOptions, *, machine: Machine, installation: MpiInstallation, executable: str) -> LaunchPlan:
    """Decide everything; nothing is read, started or written."""
    layout = options.layout
    shared = _mpi_environment(installation) | _thread_environment(options.num_instances, machine)
    instances = []
    for index in range(options.num_instances):
        environment = Environment.of_instance(
            layout, index, ipus_per_replica=options.ipus_per_replica, local_instance_index=index
        )
        instances.append(
            Instance(index, machine.name, index, layout.replicas(index), environment.to_environ() | shared)
        )
    request = Request(installation, options.num_instances, machine.cpus, _supervisor(machine.python), machine.environ)
    return LaunchPlan(
        program=options.program,
        executable=executable,
        cwd=machine.cwd,
        instances=tuple(instances),
        unset=("MPI4PY_MPIABI",) if installation.library else (),
        installation=installation,
        command=BACKENDS[installation.kind](request),
    )


def _supervisor(python: str) -> tuple[str, ...]:
    """Isolated from the user's PYTHON* variables, and without site: it starts in half the time."""
    return (python, "-I", "-S", SUPERVISOR_FILE)


def _mpi_environment(installation: MpiInstallation) -> dict[str, str]:
    """mpi4py loads this very library; naming the ABI instead would load whichever is found."""
    return {"MPI4PY_LIBMPI": installation.library} if installation.library else {}


def _thread_environment(num_instances: int, machine: Machine) -> dict[str, str]:
    """An even share of the CPUs for each instance, unless the user has decided."""
    threads = str(max(1, machine.cpus // num_instances))
    return {name: threads for name in THREAD_VARIABLES if name not in machine.environ}


def _assignments(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
