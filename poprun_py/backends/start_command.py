"""StartCommand: what is executed to start the supervisors, and what a back end needs to know to make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from poprun_py.site.cluster import Cluster
from poprun_py.site.mpi_installation import MpiInstallation

__all__ = ["StartCommand", "StartRequest"]


@dataclass(frozen=True)
class StartRequest:
    """``supervisor`` is to be started ``num_instances`` times, evenly on the hosts of ``cluster``, in blocks.

    ``cpus`` are those of this host; ``extra`` are the user's words for the command as a whole, ``local`` those for
    each instance. ``forwarded`` names variables that must reach the supervisors on other hosts.
    """

    installation: MpiInstallation
    num_instances: int
    cpus: int
    supervisor: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)  # the user's
    cluster: Cluster = field(default_factory=Cluster)
    extra: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    ssh: str = ""  # the ssh to use; empty: the MPI's choice
    as_root: bool = True
    forwarded: tuple[str, ...] = ()

    @property
    def per_host(self) -> int:
        return self.num_instances // max(1, len(self.cluster.hosts))

    @property
    def oversubscribed(self) -> bool:
        return self.per_host > self.cpus


@dataclass(frozen=True)
class StartCommand:
    """The words to execute, what to add to the user's environment, and where a process reads its rank."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    rank_variable: str
