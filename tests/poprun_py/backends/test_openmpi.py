"""Open MPI's mpirun: its environment."""

from __future__ import annotations

import pwd

import pytest

from poprun_py.backends.openmpi import command
from poprun_py.backends.start_command import StartRequest
from poprun_py.site.mpi_installation import MpiInstallation


@pytest.mark.parametrize(("environ", "home"), [({}, "/home/me"), ({"HOME": "/elsewhere"}, None)])
def test_home_is_given_where_there_is_none(environ, home, monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("me", "x", 1, 1, "", "/home/me", "/bin/sh")))
    assert command(request(environ)).environment.get("HOME") == home


def test_a_user_without_an_entry_lives_at_the_root(monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda _: {}["unknown"])
    assert command(request({})).environment["HOME"] == "/"


def request(environ):
    return StartRequest(MpiInstallation("openmpi", "mpirun"), 2, 4, ("true",), environ)
