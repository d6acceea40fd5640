"""Limits: that of open files is raised, or the job is refused with advice; a near limit of processes is reported."""

from __future__ import annotations

import os
import resource

import pytest

from poprun_py.errors import PoprunError
from poprun_py.linux import limits as limits_module
from poprun_py.linux.limits import allow_open_files, process_shortage


@pytest.fixture
def limits(monkeypatch):
    """A simulated limit, instead of this process's own."""
    state = [(20, 1000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: state[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, value: state.__setitem__(0, value))
    return state


def test_a_limit_that_is_too_low_is_raised_to_what_is_needed(limits):
    allow_open_files(2)
    assert limits == [(60, 1000)]


@pytest.mark.parametrize("limit", [(4096, 4096), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)])
def test_a_limit_that_is_high_enough_is_unchanged(limits, limit):
    limits[0] = limit
    allow_open_files(4)
    assert limits == [limit]


def test_a_job_that_may_not_open_enough_files_is_refused(limits):
    limits[0] = (10, 10)
    with pytest.raises(PoprunError, match=r"2 instances.*60 open files.*10.*ulimit -n 60"):
        allow_open_files(2)


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """User 77 with two processes and a limit of 12, in a nested control group."""
    states = {"self": "Uid:\t77\t77\nCapEff:\t0000000000000000\n", "5": "Uid:\t77\t0\nThreads:\t4\n"}
    states |= {"6": "Uid:\t77\t77\nThreads:\t3\n", "7": "Uid:\t0\t77\nThreads:\t90\n"}
    for name, text in states.items():
        (tmp_path / "proc" / name).mkdir(parents=True)
        (tmp_path / "proc" / name / "status").write_text(text)
    (tmp_path / "proc" / "8").mkdir()  # a process that has just ended
    (tmp_path / "proc" / "self" / "cgroup").write_text("4:memory:/other\n3:pids:/outer/inner\n0::/plain\n")
    for group, (most, used) in {
        "pids/outer": ("40", 25),
        "pids/outer/inner": ("max", 20),
        "plain": ("99", 1),
    }.items():
        folder = tmp_path / "groups" / group
        folder.mkdir(parents=True)
        (folder / "pids.max").write_text(f"{most}\n")
        (folder / "pids.current").write_text(f"{used}\n")
    paths = {"/proc": "proc", "/proc/self/cgroup": "proc/self/cgroup", "/sys/fs/cgroup": "groups"}
    monkeypatch.setattr(limits_module, "Path", lambda path: tmp_path / paths[path])
    monkeypatch.setattr(resource, "getrlimit", lambda _: (12, 12))
    monkeypatch.setattr(os, "getuid", lambda: 77)
    return tmp_path


def test_the_nearest_limit_of_processes_is_named(kernel):
    assert process_shortage(1) == (
        "ulimit -u is 12, which leaves room for 5 more processes and threads here, and such a job may need 16; if "
        "that is the reason, raise the limit of processes (ulimit -u, or pids.max of the control group)"
    )
    (kernel / "groups" / "pids" / "outer" / "pids.max").write_text("24")
    assert process_shortage(1).startswith("pids.max is 24, which leaves room for 0 more processes and threads here")


def test_limits_of_processes_that_are_far_or_of_others_are_not_named(kernel, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert process_shortage(1).startswith("pids.max is 40, which leaves room for 15 more")
    (kernel / "groups" / "pids" / "outer" / "pids.max").write_text("41")
    assert process_shortage(1) == ""
    assert "pids.max is 41" in process_shortage(2)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (12, 12))
    (kernel / "proc" / "self" / "status").write_text("CapEff:\t0000000001000000\n")  # CAP_SYS_RESOURCE
    assert process_shortage(1) == ""
