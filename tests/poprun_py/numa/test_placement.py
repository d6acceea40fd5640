"""Placement: plans for simulated hosts, and the binding that the kernel reports on real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from poprun_py.numa.binding import bind
from poprun_py.numa.placement import STRATEGIES, Placement, place
from poprun_py.numa.topology import NumaNode, NumaTopology, discover_local, format_cpu_list
from poprun_py.options.option_table import LaunchOptions
from poprun_py.plan.launch_plan import THREAD_VARIABLES, placement_strategy

ROOT = Path(__file__).parents[3]


def host(nodes, cores, threads=1):
    """``nodes`` x ``cores`` x ``threads`` CPUs; second threads are numbered after all first ones."""
    count = nodes * cores
    numbered = [
        tuple(tuple(core + count * thread for thread in range(threads)) for core in range(first, first + cores))
        for first in range(0, count, cores)
    ]
    return NumaTopology(tuple(NumaNode(index, node, (index,)) for index, node in enumerate(numbered)))


def places(topology, strategy, count):
    placements = [place(topology, strategy, index=index, count=count) for index in range(count)]
    return [
        f"{format_cpu_list(placement.cpus)}@{format_cpu_list(placement.memory)}x{placement.threads}"
        for placement in placements
    ]


def test_the_example_of_the_poprun_documents():
    """2 instances on 4 nodes: 2 nodes each."""
    assert places(host(4, 2), "spreadnuma", 2) == ["0-3@0-1x4", "4-7@2-3x4"]


@pytest.mark.parametrize(
    ("strategy", "nodes", "cores", "count", "expected"),
    [
        ("spreadnuma", 1, 4, 1, ["0-3@0x4"]),
        ("spreadnuma", 2, 4, 2, ["0-3@0x4", "4-7@1x4"]),
        ("spreadnuma", 2, 4, 4, ["0-3@0x2", "0-3@0x2", "4-7@1x2", "4-7@1x2"]),
        ("spreadnuma", 2, 4, 3, ["0-3@0x2", "0-3@0x2", "4-7@1x4"]),
        ("spreadnuma", 4, 1, 3, ["0@0x1", "1@1x1", "2-3@2-3x2"]),
        ("spreadnuma", 1, 2, 8, ["0-1@0x1"] * 8),
        ("spreadcore", 2, 4, 4, ["0-1@0x2", "2-3@0x2", "4-5@1x2", "6-7@1x2"]),
        ("spreadcore", 2, 2, 3, ["0@0x1", "1@0x1", "2-3@1x2"]),
        ("spreadcore", 1, 2, 4, ["0@0x1", "0@0x1", "1@0x1", "1@0x1"]),
        ("spreadcore", 2, 3, 2, ["0-2@0x3", "3-5@1x3"]),
        ("roundrobin", 2, 4, 3, ["0-3@0x2", "4-7@1x4", "0-3@0x2"]),
        ("disabled", 2, 4, 2, ["0-7@0-1x4", "0-7@0-1x4"]),
    ],
)
def test_strategies(strategy, nodes, cores, count, expected):
    assert places(host(nodes, cores), strategy, count) == expected


def test_threads_of_a_core_are_kept_together():
    assert places(host(1, 4, threads=2), "spreadcore", 4) == ["0,4@0x2", "1,5@0x2", "2,6@0x2", "3,7@0x2"]


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"disabled"}))
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 16])
def test_instances_share_a_place_or_have_nothing_in_common(strategy, count):
    topology = host(4, 3, threads=2)
    placements = [place(topology, strategy, index=index, count=count) for index in range(count)]
    for placement in placements:
        same = [other for other in placements if other.cpus == placement.cpus]
        assert len(same) == placement.sharers
        assert all(not set(placement.cpus) & set(other.cpus) for other in placements if other not in same)
    if strategy != "roundrobin" or count >= 4:
        assert {cpu for placement in placements for cpu in placement.cpus} == set(topology.cpus)


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ({}, "spreadnuma"),
        ({"process_placement": "disabled"}, "disabled"),
        ({"numa_aware": True}, "roundrobin"),
        ({"numa_aware": False}, "disabled"),
        ({"numa_aware": True, "process_placement": "spreadcore"}, "spreadcore"),
    ],
)
def test_the_old_option_counts_unless_the_new_one_is_given(options, strategy):
    assert placement_strategy(LaunchOptions(**options, explicit=frozenset(options))) == strategy


def memory_policies():
    """The policies of the memory of this process, as the kernel lists them for each mapping."""
    return {line.split()[1] for line in Path("/proc/self/numa_maps").read_text().splitlines()}


def test_the_kernel_binds_cpus_and_memory():
    """A separate process reports its binding, and that of a program that it starts."""
    cpu, node = min(os.sched_getaffinity(0)), discover_local().memory[0]
    argv = [sys.executable, "-m", "tests.programs.poprun_py.bound_memory", str(cpu), str(node)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=True)
    words, cpus, maps = done.stdout.splitlines()
    assert words == f"'' {{{cpu}}} {{'bind:{node}'}}", done.stderr
    assert cpus.split() == ["Cpus_allowed_list:", str(cpu)]
    assert int(maps) > 0


def test_without_binding_nothing_changes():
    before = os.sched_getaffinity(0), memory_policies()
    assert bind(Placement((0,), (0,), bound=False)) == ""
    assert (os.sched_getaffinity(0), memory_policies()) == before


def test_cpus_that_the_kernel_refuses_are_reported():
    imports = "from poprun_py.numa.binding import *; from poprun_py.numa.placement import *"
    script = f"{imports}; print(bind(Placement((4095,), ())))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "it cannot be bound to its CPUs: Invalid argument\n"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_instances_of_a_job_are_bound_and_use_their_cpus(launch):
    """By cores: each of two instances has half the CPUs, according to the kernel and to its libraries."""
    show = "grep Cpus_allowed_list /proc/self/status; echo threads $" + " $".join(THREAD_VARIABLES)
    job = launch("--num-instances", "2", "--process-placement", "spreadcore", "sh", "-c", show)
    code, out, err = job.finish()
    assert code == 0, err
    lines = sorted(out.decode().splitlines())
    topology = discover_local()
    for index in range(2):
        mine = place(topology, "spreadcore", index=index, count=2)
        assert f"[1,{index}]<stdout>:Cpus_allowed_list:\t{format_cpu_list(mine.cpus)}" in lines
        assert f"[1,{index}]<stdout>:threads {' '.join([str(mine.threads)] * len(THREAD_VARIABLES))}" in lines


def test_nothing_is_bound_when_placement_is_disabled(launch):
    job = launch("--process-placement=disabled", "grep", "-E", "^Cpus_allowed_list", "/proc/self/status")
    assert job.finish()[1].decode().split()[-1] == format_cpu_list(os.sched_getaffinity(0))


@pytest.mark.parametrize("strategy", ["spreadnuma", "spreadcore"])
def test_instances_count_those_with_the_same_part(strategy):
    for count in range(1, 23):
        placed = [place(host(3, 2), strategy, index=index, count=count) for index in range(count)]
        for placement in placed:
            assert placement.sharers == sum(other.cpus == placement.cpus for other in placed), f"{count} instances"
