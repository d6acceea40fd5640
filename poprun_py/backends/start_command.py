"""Start command: the command that starts all supervisors, and the request from which a back end makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from poprun_py.site.cluster import Cluster
from poprun_py.site.mpi_installation import MpiInstallation


@dataclass(frozen=True)
class StartRequest:
    """A request to start ``supervisor`` ``num_instances`` times, divided evenly among the hosts of ``cluster``.

    ``cpus`` is the number on this host; ``extra`` are the user's arguments for the whole command, ``local`` those for
    each instance.
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

    @property
    def per_host(self) -> int:
        return self.num_instances // max(1, len(self.cluster.hosts))

    @property
    def oversubscribed(self) -> bool:
        return self.per_host > self.cpus


@dataclass(frozen=True)
class StartCommand:
    """The words to execute, the variables to add to the environment, and the variable with a process's rank.

    ``folder_variables`` name the folder in which the command makes its files, ``shared_variables`` that in which the
    MPI of each instance makes its shared memory. ``unset`` names variables of ``environment`` that instances do not
    inherit.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    rank_variable: str
    folder_variables: tuple[str, ...] = ()
    shared_variables: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
