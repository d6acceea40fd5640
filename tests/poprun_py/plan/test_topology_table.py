"""Topology table: it equals the sample in every character."""

from __future__ import annotations

import pytest

from poprun_py.plan.plan_report import topology_table

# mlcommons/training_results_v1.1, Graphcore/benchmarks/resnet/implementations/tensorflow/README.md
SAMPLE = """\
 ===========================================
|              poprun topology              |
|===========================================|
| hosts     |           localhost           |
|-----------|-------------------------------|
| ILDs      |               0               |
|-----------|-------------------------------|
| instances |       0       |       1       |
|-----------|-------------------------------|
| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
 -------------------------------------------
"""


def table(instances: int, replicas: int, host: str = "localhost") -> str:
    local = replicas // instances
    return topology_table(
        hosts=[(host, replicas)],
        ilds=[("0", replicas)],
        instances=[(str(index), local) for index in range(instances)],
    )


def test_the_known_sample():
    assert table(2, 8) == SAMPLE


def test_an_odd_blank_goes_to_the_right():
    assert "|  gc-poplar-02  |" not in table(1, 4, "gc-poplar-02")
    assert "| gc-poplar-02  |" in table(1, 4, "gc-poplar-02")


def test_indices_are_as_wide_as_the_largest():
    assert table(2, 16).splitlines()[-2].endswith("| 8  | 9  | 10 | 11 | 12 | 13 | 14 | 15 |")


@pytest.mark.parametrize("replicas", [1, 2, 3, 8, 12, 16, 64, 128])
def test_every_line_is_as_wide_as_the_others(replicas):
    for instances in (count for count in range(1, replicas + 1) if replicas % count == 0):
        first, *middle, last = table(instances, replicas).splitlines()
        assert {len(line) for line in middle} == {len(first) + 1} == {len(last) + 1}
        assert all(line[0] == line[-1] == "|" for line in middle)


def test_a_label_wider_than_its_replicas_widens_them():
    lines = table(1, 1, "a-rather-long-host-name").splitlines()
    assert "| hosts     | a-rather-long-host-name |" in lines
    assert len({len(line) for line in lines[1:-1]}) == 1


def test_several_hosts_and_domains_span_their_replicas():
    lines = topology_table(
        hosts=[("h1", 2), ("h2", 2)], ilds=[("0", 2), ("1", 2)], instances=[(str(i), 1) for i in range(4)]
    ).splitlines()
    assert lines[3] == "| hosts     |  h1   |  h2   |"
    assert lines[7] == "| instances | 0 | 1 | 2 | 3 |"
