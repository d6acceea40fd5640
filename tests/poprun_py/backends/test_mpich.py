"""MPICH's mpirun: its environment."""

from __future__ import annotations

import pytest

from poprun_py.backends.mpich import TOPOLOGY_FILE, command
from poprun_py.backends.start_command import StartRequest
from poprun_py.site.mpi_installation import MpiInstallation


@pytest.mark.parametrize(
    ("environ", "cpus", "given"),
    [({}, 4, {TOPOLOGY_FILE: ""}), ({TOPOLOGY_FILE: "/my/topology.xml"}, 4, {}), ({}, 128, {})],
    ids=["by default", "the user's", "many CPUs"],
)
def test_hydra_writes_no_file_of_the_topology(environ, cpus, given):
    made = command(StartRequest(MpiInstallation("mpich", "mpirun"), 2, cpus, ("true",), environ))
    assert dict(made.environment) == given
    assert made.unset == tuple(given)
