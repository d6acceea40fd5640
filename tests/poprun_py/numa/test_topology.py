"""NUMA topology: discovery on sysfs trees like those of real machines."""

from __future__ import annotations

import os

import psutil
import pytest

from poprun_py.numa.topology import discover, discover_local, format_cpu_list, parse_cpu_list


def record(root, nodes, *, siblings=(), online=None, memory=None, distances=None):
    """A sysfs tree: ``nodes`` are CPU lists by node; ``siblings`` are cores of several CPUs; ``memory`` in kB."""
    cpus = sorted(cpu for text in nodes.values() for cpu in parse_cpu_list(text))
    for index, text in nodes.items():
        folder = root / f"devices/system/node/node{index}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(text + "\n")
        total = 1000 if memory is None else memory[index]
        (folder / "meminfo").write_text(f"Node {index} MemTotal:       {total} kB\nNode {index} MemFree: 1 kB\n")
        row = distances[index] if distances else [10 if other == index else 20 for other in nodes]
        (folder / "distance").write_text(" ".join(map(str, row)) + "\n")
    (root / "devices/system/node/online").write_text(format_cpu_list(nodes) + "\n")
    (root / "devices/system/cpu").mkdir(parents=True)
    (root / "devices/system/cpu/online").write_text((online or format_cpu_list(cpus)) + "\n")
    for cpu in cpus:
        core = next((core for core in siblings if cpu in core), (cpu,))
        folder = root / f"devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(format_cpu_list(core) + "\n")
    return str(root), set(cpus)


def nodes_of(tree, *, cpus=None, memory=None):
    root, every = tree
    topology = discover(root, cpus=every if cpus is None else cpus, memory=memory)
    return [(node.number, format_cpu_list(node.cpus), node.memory) for node in topology.nodes]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_plain_nodes(tmp_path, count):
    tree = record(tmp_path, {node: f"{4 * node}-{4 * node + 3}" for node in range(count)})
    assert nodes_of(tree) == [(node, f"{4 * node}-{4 * node + 3}", (node,)) for node in range(count)]


def test_two_sockets_whose_cores_have_two_threads(tmp_path):
    """Dual EPYC: CPUs 0-3 and 4-7 are the first threads, 8-11 and 12-15 the second."""
    tree = record(tmp_path, {0: "0-3,8-11", 1: "4-7,12-15"}, siblings=[(cpu, cpu + 8) for cpu in range(8)])
    assert nodes_of(tree) == [(0, "0-3,8-11", (0,)), (1, "4-7,12-15", (1,))]
    assert discover(*tree[:1], cpus=tree[1], memory=None).nodes[1].cores == ((4, 12), (5, 13), (6, 14), (7, 15))


def test_offline_cpus_do_not_count(tmp_path):
    tree = record(tmp_path, {0: "0-3", 1: "4-7"}, online="0,2,4-5")
    assert nodes_of(tree) == [(0, "0,2", (0,)), (1, "4-5", (1,))]


def test_a_thread_whose_sibling_is_offline_is_a_core_of_its_own(tmp_path):
    root, cpus = record(tmp_path, {0: "0-3"}, siblings=[(0, 2), (1, 3)], online="0-2")
    assert discover(root, cpus=cpus, memory=None).nodes[0].cores == ((0, 2), (1,))


def test_nodes_that_are_memory_only_belong_to_the_closest_with_cpus(tmp_path):
    """Xeon Max in flat mode: HBM nodes 2 and 3 beside the DDR nodes 0 and 1."""
    distances = {0: [10, 21, 13, 23], 1: [21, 10, 23, 13], 2: [13, 23, 10, 23], 3: [23, 13, 23, 10]}
    tree = record(tmp_path, {0: "0-1", 1: "2-3", 2: "", 3: ""}, distances=distances)
    assert nodes_of(tree) == [(0, "0-1", (0, 2)), (1, "2-3", (1, 3))]


def test_cpus_without_memory_use_the_closest(tmp_path):
    """Threadripper 2990WX: dies 1 and 3 have no memory of their own."""
    distances = {0: [10, 16, 17, 17], 1: [16, 10, 17, 17], 2: [17, 17, 10, 16], 3: [17, 17, 16, 10]}
    tree = record(
        tmp_path, {0: "0-1", 1: "2-3", 2: "4-5", 3: "6-7"}, memory={0: 9, 1: 0, 2: 9, 3: 0}, distances=distances
    )
    assert [memory for _, _, memory in nodes_of(tree)] == [(0,), (0,), (2,), (2,)]


def test_a_container_sees_its_own_cpus_and_memory_only(tmp_path):
    tree = record(tmp_path, {0: "0-3", 1: "4-7"})
    assert nodes_of(tree, cpus={5, 6}, memory={1}) == [(1, "5-6", (1,))]
    assert nodes_of(tree, cpus={0, 5}, memory={1}) == [(0, "0", (1,)), (1, "5", (1,))]


def test_numbers_of_nodes_may_have_gaps(tmp_path):
    """POWER9: nodes 0 and 8 are sockets."""
    assert nodes_of(record(tmp_path, {0: "0-3", 8: "4-7"})) == [(0, "0-3", (0,)), (8, "4-7", (8,))]


def test_a_kernel_without_numa_is_one_node(tmp_path):
    (tmp_path / "devices/system/cpu").mkdir(parents=True)
    (tmp_path / "devices/system/cpu/online").write_text("0-3\n")
    assert nodes_of((str(tmp_path), {0, 1, 2, 3})) == [(0, "0-3", ())]
    assert nodes_of((str(tmp_path / "nothing"), {2, 3})) == [(0, "2-3", ())]


def test_this_host_as_psutil_sees_it():
    topology = discover_local()
    assert set(topology.cpus) == os.sched_getaffinity(0) == set(psutil.Process().cpu_affinity())
    assert sum(len(node.cores) for node in topology.nodes) <= len(topology.cpus)


@pytest.mark.parametrize("text", ["", "0", "0-3", "0-3,8-11", "1,3,5", "0,2-3,7"])
def test_lists_of_the_kernel(text):
    assert format_cpu_list(parse_cpu_list(text + "\n")) == text
