"""Failure: which instance is blamed, on several hosts and in any order of reports."""

from __future__ import annotations

import itertools
import signal
from dataclasses import replace

import pytest

from poprun_py.job.failure import InstanceEnd, first_failure
from poprun_py.options.parser import parse
from poprun_py.plan.launch_plan import plan
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation
from poprun_py.wire.messages import LAUNCHER, OWN, UNMANAGED


def end(rank: int, status: int, at: float = 1.0, *, host: str = "", cause: str = OWN, lost: bool = False):
    options = parse(["--num-instances", "4", "--num-replicas", "4", "prog"])
    launch_plan = plan(options, machine=Machine(), installation=MpiInstallation("mpich", "m"), executable="/p")
    instance = replace(launch_plan.instances[rank], host=host or f"h{rank // 2}")
    return InstanceEnd(instance, 100 + rank, status, cause, at, lost=lost)


#: How a program ends after it has lost a peer: in its MPI, by a defect of its own, or with an exit code.
FOLLOWING = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, 14)


@pytest.mark.parametrize("killed", [-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGKILL, -signal.SIGXCPU])
@pytest.mark.parametrize("at", [0.9, 1.1], ids=["seen before", "seen after"])
def test_an_instance_that_was_killed_is_blamed_for_the_crashes_of_others(killed, at):
    others = [end(rank, status) for rank, status in zip((0, 1, 2), FOLLOWING[:3], strict=True)]
    for order in itertools.permutations([end(3, killed, at), *others]):
        assert first_failure(order).instance.index == 3
    for status in FOLLOWING:
        assert first_failure([end(0, status), end(3, killed, at)]).instance.index == 3


def test_of_two_that_were_killed_the_first_is_blamed():
    assert first_failure([end(0, -signal.SIGSEGV), end(1, -9, 3.0), end(3, -9, 2.0)]).instance.index == 3


def test_a_lost_supervisor_is_blamed_for_the_crashes_of_others():
    assert first_failure([end(0, -signal.SIGSEGV), end(3, -9, 5.0, lost=True)]).instance.index == 3
    assert first_failure([end(3, -9, 5.0, lost=True), end(0, -9, 4.0)]).instance.index == 3


def test_one_that_the_launcher_ended_is_not_blamed():
    assert first_failure([end(0, -signal.SIGSEGV), end(3, -9, cause=LAUNCHER)]).instance.index == 0


def test_of_crashes_on_several_hosts_the_first_is_blamed_though_it_became_known_later():
    assert first_failure([end(0, -signal.SIGSEGV, 7.002), end(3, -signal.SIGSEGV, 7.0)]).instance.index == 3
    assert first_failure([end(0, 3, 7.0), end(3, -signal.SIGSEGV, 7.002)]).instance.index == 0


@pytest.mark.parametrize(("exited", "blamed"), [(6.9, 0), (7.1, 3)])
def test_of_a_crash_and_an_exit_while_the_process_manager_ended_the_first_is_blamed(exited, blamed):
    ends = [end(0, 3, exited, cause=UNMANAGED), end(3, -signal.SIGSEGV, 7.0)]
    assert first_failure(ends).instance.index == first_failure(ends[::-1]).instance.index == blamed
    assert first_failure(ends[:1]) is None


def test_one_that_missed_a_peer_is_blamed_for_no_crash():
    follower = replace(end(0, 14, 1.0), follows=True)
    assert first_failure([follower, end(3, -signal.SIGSEGV, 2.0)]).instance.index == 3
