"""Partition: the emulated V-IPU partition of a job; scripts for a Pod create, use and remove it unchanged.

Partitions are kept in a file per user (partition_file.py). A request and the existing partitions determine the
assignment:

    partitions                          the job ...
    none of the name                    creates it, and removes it at its end unless --remove-partition no
    one of the name, large enough       uses it
    one of the name, too small          recreates it with --update-partition yes, is refused without
    no name given, a single partition   uses that one, unless it will be removed with another job
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

from popdist_py.layout import device_size
from poprun_py.errors import UsageError, VipuBusyError
from poprun_py.options import values
from poprun_py.options.option_names import option_of
from poprun_py.options.option_table import PARTITION_VARIABLE, LaunchOptions, Option
from poprun_py.output.log import Log

_DEFAULT_NAME = "poprun"

#: Field of LaunchOptions -> the variable that replaces a missing option, and the value without either.
_VARIABLES: dict[str, tuple[str, str]] = {
    "vipu_server_host": ("IPUOF_VIPU_API_HOST", "localhost"),
    "vipu_server_port": ("IPUOF_VIPU_API_PORT", "8090"),
    "vipu_server_timeout": ("IPUOF_VIPU_API_TIMEOUT", "120"),
    "vipu_partition": (PARTITION_VARIABLE, ""),
}


@dataclass(frozen=True)
class Server:
    """The V-IPU server, emulated by a file; ``timeout`` (seconds) is the longest wait for its lock."""

    host: str
    port: int
    timeout: float
    source: str = "vipu"  # of the host: option, variable or default

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class PartitionUser:
    """A launcher that uses a partition; ``started`` (clock ticks since boot) tells apart processes of one pid."""

    pid: int
    started: int
    host: str

    def __str__(self) -> str:
        return f"PID {self.pid} on {self.host}"


@dataclass(frozen=True)
class Partition:
    """``ipus`` IPUs under a name; ``removable``: it is removed when the last of ``jobs`` ends."""

    name: str
    server: str
    ipus: int
    allocation: str | None = None
    removable: bool = False
    resets: int = 0
    jobs: tuple[PartitionUser, ...] = ()


@dataclass(frozen=True)
class PartitionRequest:
    """What a job requests of the V-IPU."""

    server: Server
    name: str | None
    ipus: int
    allocation: str | None = None
    update: bool = False
    reset: bool = False
    remove: bool = True
    attempts: int = 1


@dataclass(frozen=True)
class PartitionAssignment:
    """The partition of a job, and what was done for it: ``created``, ``recreated``, ``reset`` or ``used``."""

    partition: Partition
    action: str
    only_one: bool = False  # chosen as the only partition, not by name

    def log_to(self, log: Log) -> None:
        """Log the assignment in PopRun's words."""
        name = self.partition.name
        if self.only_one:
            log.info(f"Using V-IPU partition {name} as it is the only one available")
        log.debug(f"Connecting to {self.partition.server}")
        if self.action == "used":
            log.info(f"Partition {name} already exists and is in state: PS_ACTIVE")
        else:
            log.info(f"Partition {name} was {self.action}, with {self.partition.ipus} IPUs")
        log.debug(f"Status for partition {name}: OK (error 0)")
        log.debug(f"Done polling, final state of {name}: PS_ACTIVE")

    def __str__(self) -> str:
        size = f"{self.partition.ipus} IPU" + ("" if self.partition.ipus == 1 else "s")
        return f"{self.partition.name} ({size} on {self.partition.server}), {self.action}"


def partition_request(options: LaunchOptions, environ: Mapping[str, str]) -> PartitionRequest | None:
    """Return the job's request, None if it needs no partition; raise UsageError for wrong variables."""
    if not options.requests_partition(environ):
        return None
    mistakes: list[str] = []
    settings = {field: _value(option_of(field), options, environ, mistakes) for field in _VARIABLES}
    if mistakes:
        raise UsageError(mistakes)
    host, port, timeout, name = (settings[field] for field in _VARIABLES)
    return PartitionRequest(
        server=Server(host, port, timeout, _source(options, environ)),
        name=name or None,
        ipus=options.ipus,
        allocation=options.vipu_allocation,
        update=options.update_partition,
        reset=bool(options.reset_partition),
        remove=options.remove_partition,
        attempts=options.vipu_partition_attempts,
    )


def assign_partition(request: PartitionRequest, partitions: Sequence[Partition]) -> PartitionAssignment:
    """Assign a partition; raise UsageError if it does not fit, VipuBusyError if another job uses it."""
    here = {partition.name: partition for partition in partitions if partition.server == request.server.address}
    existing = here.get(request.name) if request.name else _only_one(list(here.values()))
    if existing is None:
        return PartitionAssignment(_new(request, request.name or _free_name(here)), "created")
    only_one = request.name is None
    if existing.ipus < request.ipus:
        return PartitionAssignment(_recreated(request, existing), "recreated", only_one)
    if request.reset:
        _check_idle(existing, "reset")
        return PartitionAssignment(replace(existing, resets=existing.resets + 1), "reset", only_one)
    return PartitionAssignment(existing, "used", only_one)


def _only_one(partitions: Sequence[Partition]) -> Partition | None:
    """The partition to use when none is named; those that are removed with their jobs do not count."""
    permanent = [partition for partition in partitions if not partition.removable]
    if len(permanent) > 1:
        names = ", ".join(sorted(partition.name for partition in permanent))
        raise UsageError([f"--vipu-partition is not given, but there are several partitions: {names}; name one"])
    return permanent[0] if permanent else None


def _free_name(taken: Container[str]) -> str:
    numbered = (f"{_DEFAULT_NAME}-{number}" for number in count(2))
    return next(name for name in chain([_DEFAULT_NAME], numbered) if name not in taken)


def _new(request: PartitionRequest, name: str) -> Partition:
    return Partition(name, request.server.address, device_size(request.ipus), request.allocation, request.remove)


def _recreated(request: PartitionRequest, existing: Partition) -> Partition:
    if not request.update:
        raise UsageError(
            [
                f"--vipu-partition {existing.name}: the job needs {request.ipus} IPUs, but the partition has "
                f"{existing.ipus}; add --update-partition yes, which recreates it, or name another one"
            ]
        )
    _check_idle(existing, "recreated")
    return replace(existing, ipus=device_size(request.ipus), allocation=request.allocation or existing.allocation)


def _check_idle(partition: Partition, what: str) -> None:
    if partition.jobs:
        users = ", ".join(map(str, partition.jobs))
        raise VipuBusyError(
            f"--vipu-partition {partition.name}: it cannot be {what} while another job uses it ({users}); wait for "
            "its end, name another partition or give --vipu-partition-attempts"
        )


def _source(options: LaunchOptions, environ: Mapping[str, str]) -> str:
    variable = _VARIABLES["vipu_server_host"][0]
    return "--vipu-server-host" if options.vipu_server_host else variable if environ.get(variable) else "vipu"


def _value(option: Option, options: LaunchOptions, environ: Mapping[str, str], mistakes: list[str]) -> Any:
    """The value of the option, else of the variable, else the default."""
    value = getattr(options, option.target)
    if value is not None:
        return value
    name, default = _VARIABLES[option.target]
    try:
        return (option.read or values.text)(environ.get(name) or default) if default else environ.get(name, "")
    except ValueError as error:
        mistakes.append(f"{name}={environ[name]}: {error}; correct the variable or give --{option.name}")
        return default
