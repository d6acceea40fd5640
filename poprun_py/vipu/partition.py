"""V-IPU: the emulated partition that a job runs in; scripts written for a Pod create, use and remove it unchanged.

A partition is a row in a small file per user (see partitions.py). What a job needs (`Request`) and what there is
decide what happens to it (`Decision`):

    there is ...                        the job ...
    no partition of the name            creates it, and removes it at its end unless --remove-partition no
    one that is large enough            uses it
    one that is too small               creates it anew with --update-partition yes, and is refused without
    no name, but a single partition     uses that one, unless it goes with another job
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

from poprun_py.errors import UsageError, VipuBusyError
from poprun_py.options import values
from poprun_py.options.option_names import option_of
from poprun_py.options.option_table import OPTIONS, LaunchOptions, Option
from poprun_py.options.system_size import partition_size
from poprun_py.output.log import Log

__all__ = ["Decision", "Job", "Partition", "Request", "Server", "decide", "request"]

_DEFAULT_NAME = "poprun"

#: Field of LaunchOptions -> the variable that stands in for the option, and the value without both.
_VARIABLES: dict[str, tuple[str, str]] = {
    "vipu_server_host": ("IPUOF_VIPU_API_HOST", "localhost"),
    "vipu_server_port": ("IPUOF_VIPU_API_PORT", "8090"),
    "vipu_server_timeout": ("IPUOF_VIPU_API_TIMEOUT", "120"),
    "vipu_partition": ("IPUOF_VIPU_API_PARTITION_ID", ""),
}

#: Options that ask for a partition; without them, and without one in the environment, a job needs none.
_ASKING = frozenset(option.target for option in OPTIONS if option.group == "V-IPU")


@dataclass(frozen=True)
class Server:
    """The V-IPU server; emulated by a file, its timeout is the longest wait for that."""

    host: str
    port: int
    timeout: float
    source: str = "vipu"  # who named the host

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Job:
    """A launcher that uses a partition; ``started`` (clock ticks since boot) tells it from a later process."""

    pid: int
    started: int
    host: str

    def __str__(self) -> str:
        return f"PID {self.pid} on {self.host}"


@dataclass(frozen=True)
class Partition:
    """``ipus`` IPUs under a name; ``removable`` says that it goes when the last of ``jobs`` ends."""

    name: str
    server: str
    ipus: int
    allocation: str | None = None
    removable: bool = False
    resets: int = 0
    jobs: tuple[Job, ...] = ()

    def is_of(self, server: Server) -> bool:
        return self.server == server.address


@dataclass(frozen=True)
class Request:
    """What one job wants of the V-IPU."""

    server: Server
    name: str | None
    ipus: int
    allocation: str | None = None
    update: bool = False
    reset: bool = False
    remove: bool = True
    attempts: int = 1


@dataclass(frozen=True)
class Decision:
    """The partition as it will be, and what happens to it: ``created``, ``created anew``, ``reset`` or ``used``."""

    partition: Partition
    action: str
    only_one: bool = False  # it was not named

    def explain(self, log: Log) -> None:
        """Log it in PopRun's words."""
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


def request(options: LaunchOptions, environ: Mapping[str, str]) -> Request | None:
    """What the job wants, None where nothing asks for a partition; raise UsageError for variables that are wrong."""
    if not options.given & _ASKING and not environ.get(_VARIABLES["vipu_partition"][0]):
        return None
    mistakes: list[str] = []
    found = {field: _value(option_of(field), options, environ, mistakes) for field in _VARIABLES}
    if mistakes:
        raise UsageError(mistakes)
    host, port, timeout, name = (found[field] for field in _VARIABLES)
    return Request(
        server=Server(host, port, timeout, _source(options, environ)),
        name=name or None,
        ipus=options.ipus,
        allocation=options.vipu_allocation,
        update=options.update_partition,
        reset=bool(options.reset_partition),
        remove=options.remove_partition,
        attempts=options.vipu_partition_attempts,
    )


def decide(wanted: Request, partitions: Sequence[Partition]) -> Decision:
    """What happens to which partition; raise UsageError where it does not fit, VipuBusyError where it must wait."""
    here = {partition.name: partition for partition in partitions if partition.is_of(wanted.server)}
    found = here.get(wanted.name) if wanted.name else _only_one(list(here.values()))
    if found is None:
        return Decision(_new(wanted, wanted.name or _free_name(here)), "created")
    only_one = wanted.name is None
    if found.ipus < wanted.ipus:
        return Decision(_anew(wanted, found), "created anew", only_one)
    if wanted.reset:
        _check_idle(found, "reset")
        return Decision(replace(found, resets=found.resets + 1), "reset", only_one)
    return Decision(found, "used", only_one)


def _only_one(partitions: Sequence[Partition]) -> Partition | None:
    """The partition to take when none is named; those that go with their jobs are not for others."""
    kept = [partition for partition in partitions if not partition.removable]
    if len(kept) > 1:
        names = ", ".join(sorted(partition.name for partition in kept))
        raise UsageError([f"--vipu-partition is not given, but there are several partitions: {names}; name one"])
    return kept[0] if kept else None


def _free_name(taken: Container[str]) -> str:
    numbered = (f"{_DEFAULT_NAME}-{number}" for number in count(2))
    return next(name for name in chain([_DEFAULT_NAME], numbered) if name not in taken)


def _new(wanted: Request, name: str) -> Partition:
    return Partition(name, wanted.server.address, partition_size(wanted.ipus), wanted.allocation, wanted.remove)


def _anew(wanted: Request, found: Partition) -> Partition:
    if not wanted.update:
        raise UsageError(
            [
                f"--vipu-partition {found.name}: the job needs {wanted.ipus} IPUs, but the partition has "
                f"{found.ipus}; add --update-partition yes, which creates it anew, or name another one"
            ]
        )
    _check_idle(found, "created anew")
    return replace(found, ipus=partition_size(wanted.ipus), allocation=wanted.allocation or found.allocation)


def _check_idle(partition: Partition, what: str) -> None:
    if partition.jobs:
        users = ", ".join(map(str, partition.jobs))
        raise VipuBusyError(
            f"--vipu-partition {partition.name}: it cannot be {what}, for another job uses it ({users}); wait for "
            "its end, name another partition or give --vipu-partition-attempts"
        )


def _source(options: LaunchOptions, environ: Mapping[str, str]) -> str:
    variable = _VARIABLES["vipu_server_host"][0]
    return "--vipu-server-host" if options.vipu_server_host else variable if environ.get(variable) else "vipu"


def _value(option: Option, options: LaunchOptions, environ: Mapping[str, str], mistakes: list[str]) -> Any:
    """What was given, else the variable's value, else the default."""
    given = getattr(options, option.target)
    if given is not None:
        return given
    name, default = _VARIABLES[option.target]
    try:
        return (option.read or values.text)(environ.get(name) or default) if default else environ.get(name, "")
    except ValueError as error:
        mistakes.append(f"{name}={environ[name]}: {error}; correct the variable or give --{option.name}")
        return default
