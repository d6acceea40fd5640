"""Command: what is executed to start the supervisors, and what a back end needs to know to make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from poprun_py.mpi import MpiInstallation

__all__ = ["Command", "Request"]


@dataclass(frozen=True)
class Request:
    """``supervisor`` is to be started ``num_instances`` times, on a host with ``cpus`` CPUs."""

    installation: MpiInstallation
    num_instances: int
    cpus: int
    supervisor: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)  # the user's

    @property
    def oversubscribed(self) -> bool:
        return self.num_instances > self.cpus


@dataclass(frozen=True)
class Command:
    """The words to execute, what to add to the user's environment, and where a process reads its rank."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    rank_variable: str
