"""Machine: the properties of this host that the planner needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from poprun_py.errors import PoprunError
from poprun_py.numa.topology import NumaTopology, discover_local


@dataclass(frozen=True)
class Machine:
    """This host as this process sees it; ``cpus`` is the number of CPUs that the process may run on."""

    cpus: int = 1
    cwd: str = "/"
    python: str = "python3"
    name: str = "localhost"
    environ: Mapping[str, str] = field(default_factory=dict)
    nodename: str = "localhost"
    topology: NumaTopology | None = None

    @classmethod
    def here(cls) -> Machine:
        """Inspect this host; raise PoprunError if the current folder does not exist."""
        try:
            cwd = os.getcwd()
        except OSError as error:
            raise PoprunError(f"the current folder cannot be used: {error.strerror}; change to another") from None
        return cls(
            cpus=len(os.sched_getaffinity(0)),
            cwd=cwd,
            python=sys.executable,
            environ=dict(os.environ),
            nodename=os.uname().nodename,
            topology=discover_local(),
        )
