"""Open MPI's mpirun: its environment."""

from __future__ import annotations

import pwd
import subprocess
from pathlib import Path

import pytest

from poprun_py.backends import openmpi
from poprun_py.backends.openmpi import command
from poprun_py.backends.start_command import StartRequest
from poprun_py.site.cluster import Cluster
from poprun_py.site.mpi_installation import MpiInstallation


@pytest.mark.parametrize(("environ", "home"), [({}, "/home/me"), ({"HOME": "/elsewhere"}, None)])
def test_home_is_given_where_there_is_none(environ, home, monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("me", "x", 1, 1, "", "/home/me", "/bin/sh")))
    assert command(request(environ)).environment.get("HOME") == home


def test_a_user_without_an_entry_lives_at_the_root(monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda _: {}["unknown"])
    assert command(request({})).environment["HOME"] == "/"


SSH = Path(openmpi.__file__).with_name("prte_ssh.sh")

HERE = Cluster()

AGENT = "PRTE_MCA_plm_ssh_agent"


@pytest.mark.parametrize(
    ("environ", "python", "ssh", "agent"),
    [
        ({}, "/bin/python", "", f"{SSH} /bin/python ssh"),
        ({}, "/bin/python", "/my/ssh", f"{SSH} /bin/python /my/ssh"),
        ({}, "/my folder/python", "", None),
        ({}, "/my(1)/python", "", None),
        ({}, "/my folder/python", "/my/ssh", "/my/ssh"),
        ({"SGE_ROOT": "/sge"}, "/bin/python", "", None),
        ({"SGE_ROOT": "/sge"}, "/bin/python", "/my/ssh", f"{SSH} /bin/python /my/ssh"),
        ({AGENT: "rsh"}, "/bin/python", "/my/ssh", None),
    ],
)
def test_guards_are_started_with_the_daemons_on_other_hosts(environ, python, ssh, agent):
    start = command(request(environ, supervisor=(python, "x.py"), ssh=ssh, cluster=Cluster(hosts=("h0", "h1"))))
    assert start.environment.get(AGENT) == agent
    assert "POPRUN_PY_FOLDER" in start.folder_variables
    assert start.unset == ("POPRUN_PY_FOLDER",)


def test_a_job_on_one_host_has_no_guard():
    start = command(request({}, ssh="/my/ssh"))
    assert AGENT not in start.environment
    assert not start.unset


@pytest.mark.parametrize(
    "words",
    [
        ["h1", "A=1;export A;/a/bin/prted", "--prtemca", "ess", '"env"'],
        ["-p", "7", "h1", "prted", "--prtemca", "x", '"y/prted"'],
        ["h1", "( . ./.profile;", "orted", "-mca", ")"],
    ],
)
def test_the_agent_starts_the_guard_before_the_daemon_and_passes_all_words_on(words, tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n')
    ssh.chmod(0o700)
    environ = {"POPRUN_PY_FOLDER": "/my tmp/0", "PATH": "/usr/bin:/bin"}
    argv = [SSH, "/bin/python", ssh, *words]
    done = subprocess.run(argv, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    said = done.stdout.split("\n")[:-1]
    guard = f'/bin/python -I -S {SSH.parents[1]}/host/daemon_guard.py "/my tmp/0" &'
    assert said[0] == "-x"
    assert [word for word in said[1:] if word != guard] == words
    assert said[said.index(guard) + 1].endswith(("prted", "orted"))
    assert done.returncode == 3


def request(environ, *, supervisor=("true",), ssh="", cluster=HERE):
    installation = MpiInstallation("openmpi", "mpirun")
    return StartRequest(installation, 2, 4, supervisor, environ, cluster, ssh=ssh)
