"""Notes: what has no effect, or what real IPUs would not give, is said before the job starts."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from poprun_py.numa.topology import NumaNode, NumaTopology
from poprun_py.options.parser import parse
from poprun_py.plan.launch_plan import plan
from poprun_py.site.cluster import Cluster
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation


def noted(words: str, *, nodes: int = 1, hosts: tuple[str, ...] = (), mpi: str = "mpich") -> tuple[str, ...]:
    machine = Machine(topology=NumaTopology(tuple(NumaNode(node, ((node,),), (node,)) for node in range(nodes))))
    installation, cluster = MpiInstallation(mpi, "m"), Cluster(hosts=hosts)
    return plan(
        parse([*shlex.split(words), "p"]),
        machine=machine,
        installation=installation,
        executable="/p",
        cluster=cluster,
    ).notes


def test_a_usual_job_has_none():
    assert noted("--num-instances 4 --num-replicas 8 --ipus-per-replica 2", nodes=4) == ()
    assert noted("--num-instances 2 --num-replicas 128", hosts=("h0", "h1")) == ()


@pytest.mark.parametrize(
    ("words", "ipus", "device"),
    [
        ("--num-instances 2 --num-replicas 6", "3 replicas of 1 IPU need 3 IPUs", "4, of which 1 idle"),
        ("--ipus-per-replica 3 --num-replicas 2", "2 replicas of 3 IPUs need 6 IPUs", "8, of which 2 idle"),
    ],
)
def test_ipus_that_are_not_a_device(words, ipus, device):
    (note,) = noted(words)
    assert note.startswith(f"{ipus} in each instance, but a device has a power of two")
    assert note.endswith(f": each gets a device of {device}")
    assert noted(f"{words} --offline-mode yes") == ()


def test_several_pods_on_one_host():
    (note,) = noted("--num-replicas 128")
    assert note.startswith("2 IPU-Link domains over 1 host: ")


def test_more_instances_than_numa_nodes():
    (note,) = noted("--num-instances 3", nodes=2)
    assert note.startswith("3 instances on a host of 2 NUMA nodes: ")
    for words in ("--num-instances 2", "--num-instances 3 --process-placement spreadcore"):
        assert noted(words, nodes=2) == ()
    assert noted("--num-instances 3", nodes=1) == ()  # there is nothing to divide


def test_options_and_arguments_without_effect():
    assert noted("--allow-run-as-root no") == ("--allow-run-as-root no has no effect: mpich runs for every user",)
    assert noted("--allow-run-as-root no", mpi="openmpi") == ()
    assert noted("--mpi-global-args '--tag-output -x NONESUCH'") == (
        "-x NONESUCH has no effect: NONESUCH is not set",
    )
    (note,) = noted("--mpi-global-args '--map-by core'")
    assert note == "--map-by core is an option of Open MPI; mpich is started without it"
    assert noted("--distribute-ssh-key yes") == ("--distribute-ssh-key has no effect: distribute the keys yourself",)


def test_a_note_is_said_when_the_job_starts():
    command = [str(Path(sys.executable).parent / "poprun-py"), "--num-replicas", "3", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True)
    assert done.stderr.startswith("poprun-py: 3 replicas of 1 IPU need 3 IPUs in each instance")
    assert done.stderr.count("poprun-py: ") == 1
