"""MPICH's mpirun: its environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from poprun_py.backends import mpich
from poprun_py.backends.mpich import TOPOLOGY_FILE, command
from poprun_py.backends.start_command import StartRequest
from poprun_py.site.mpi_installation import MpiInstallation


@pytest.mark.parametrize(
    ("environ", "cpus", "variables"),
    [({}, 4, {TOPOLOGY_FILE: ""}), ({TOPOLOGY_FILE: "/my/topology.xml"}, 4, {}), ({}, 128, {})],
    ids=["by default", "the user's", "many CPUs"],
)
def test_hydra_writes_no_file_of_the_topology(environ, cpus, variables):
    start = command(StartRequest(MpiInstallation("mpich", "mpirun"), 2, cpus, ("true",), environ))
    assert dict(start.environment) == variables
    assert start.unset == tuple(variables)


def test_hydra_sets_the_variable_on_other_hosts_and_passes_all_words_on(tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n')
    ssh.chmod(0o700)
    words = ["-x", "h1", '"/a b/hydra_pmi_proxy"', "--control-port", "h0:4 2", "", "--usize", "-2"]
    done = subprocess.run(
        [Path(mpich.__file__).with_name("hydra_ssh.sh"), *words],
        env={"POPRUN_PY_SSH": str(ssh), "PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split("\n")[:-1] == [*words[:2], "env", f"{TOPOLOGY_FILE}=", *words[2:]]
    assert done.returncode == 3


def test_the_path_of_the_proxy_may_hold_what_env_takes_for_a_variable(tmp_path):
    proxy = tmp_path / "python=3.11" / "hydra_pmi_proxy"
    proxy.parent.mkdir()
    proxy.write_text('#!/bin/sh\necho "$@"\n')
    proxy.chmod(0o700)
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o700)
    done = subprocess.run(
        [Path(mpich.__file__).with_name("hydra_ssh.sh"), "h1", f'"{proxy}"', "--control-port", "7"],
        env={"POPRUN_PY_SSH": str(ssh), "PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "--control-port 7\n"
