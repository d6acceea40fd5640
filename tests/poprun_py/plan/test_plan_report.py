"""Plan report: the output of --dry-run, without side effects, and the topology."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from poprun_py.cli import main
from poprun_py.options.parser import parse
from poprun_py.plan.launch_plan import plan
from poprun_py.plan.plan_report import as_json, as_text, report, topology_report
from poprun_py.site.cluster import Cluster
from poprun_py.site.machine import Machine
from poprun_py.site.mpi_installation import MpiInstallation
from poprun_py.vipu.partition import Partition, PartitionAssignment
from tests.helpers.mpi_jobs import PROGRAMS

OPENMPI = MpiInstallation("openmpi", "/ompi/bin/mpirun", "/ompi/lib/libmpi.so.40")


def of(line: str, *, hosts: tuple[str, ...] = (), **environ: str):
    options = parse(line.split())
    machine = Machine(cpus=4, cwd="/home", python="/venv/bin/python", environ=environ)
    cluster = Cluster(hosts=hosts)
    return plan(options, machine=machine, installation=OPENMPI, executable="/bin/prog", cluster=cluster), options


def drawn(line: str, *, hosts: tuple[str, ...] = ()) -> list[str]:
    return topology_report(*of(line, hosts=hosts)).splitlines()


# -- the topology ----------------------------------------------------------------------------------------


def expected(replicas: int, instances: int) -> str:
    """The sample of the PopRun documents, generalised in the simplest way: fields of fixed width, joined by bars."""
    digits = len(str(replicas - 1))
    local = replicas // instances
    bars = "|".join(f" {index:<{digits}} " for index in range(replicas))
    widths = [local * (digits + 2) + local - 1] * instances

    def middle(text: str, width: int) -> str:
        spare = width - len(text)
        return " " * (spare // 2) + text + " " * (spare - spare // 2)

    total = 11 + 1 + len(bars)
    rule = "|" + "-" * 11 + "|" + "-" * len(bars) + "|"
    rows = [
        "| hosts     |" + middle("localhost", len(bars)) + "|",
        "| ILDs      |" + middle("0", len(bars)) + "|",
        "| instances |" + "|".join(middle(str(i), width) for i, width in enumerate(widths)) + "|",
        "| replicas  |" + bars + "|",
    ]
    head = [" " + "=" * total, "|" + middle("poprun topology", total) + "|", "|" + "=" * total + "|"]
    return "\n".join([*head, f"\n{rule}\n".join(rows), " " + "-" * total]) + "\n"


@pytest.mark.parametrize("replicas", range(3, 65))
def test_three_to_64_replicas_look_like_the_sample(replicas):
    for instances in (count for count in range(1, replicas + 1) if replicas % count == 0):
        table = topology_report(*of(f"--num-replicas {replicas} --num-instances {instances} x"))
        assert len({len(line) for line in table.splitlines()[1:-1]}) == 1
        assert table == expected(replicas, instances)


@pytest.mark.parametrize(("replicas", "cells"), [(1, "| 0         |"), (2, "| 0   | 1   |")])
def test_fewer_are_as_wide_as_the_name_of_the_host(replicas, cells):
    lines = drawn(f"--num-replicas {replicas} x")
    assert lines[3] == f"| hosts     |{'localhost'.center(len(cells) - 2)}|"
    assert lines[9] == f"| replicas  {cells}"


def test_several_hosts_and_domains():
    assert drawn("--num-instances 4 --num-replicas 8 --num-ilds 2 x", hosts=("gc-poplar-02", "gc-poplar-03")) == [
        " ===========================================",
        "|              poprun topology              |",
        "|===========================================|",
        "| hosts     | gc-poplar-02  | gc-poplar-03  |",
        "|-----------|-------------------------------|",
        "| ILDs      |       0       |       1       |",
        "|-----------|-------------------------------|",
        "| instances |   0   |   1   |   2   |   3   |",
        "|-----------|-------------------------------|",
        "| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |",
        " -------------------------------------------",
    ]


@pytest.mark.parametrize(
    ("line", "ilds"), [("--num-replicas 64", 1), ("--num-replicas 128", 2), ("--num-replicas 65", 5)]
)
def test_domains_hold_64_ipus_and_share_the_replicas_evenly(line, ilds):
    assert parse([*line.split(), "x"]).ilds == ilds


def test_verbose_adds_where_each_instance_runs(capsys):
    assert main(["--dry-run", "--print-topology=yes", "-v", "--num-instances=2", "true"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[11].startswith("instance 0 on localhost: CPUs ")
    assert lines[12].startswith("instance 1 on localhost: CPUs ")
    assert main(["--dry-run", "--print-topology=yes", "--num-instances=2", "true"]) == 0
    assert capsys.readouterr().out.splitlines()[11].startswith("program ")


# -- the plan --------------------------------------------------------------------------------------------


def test_the_text_has_the_whole_plan():
    job, options = of("--num-instances 2 --num-replicas 4 --ipus-per-replica 2 prog --flag 'a", OMPI_MCA_mtl="x")
    decision = PartitionAssignment(Partition("p", "localhost:8090", 8), "created")
    text = as_text(job, options, decision)
    for piece in (
        "program    prog --flag ''\"'\"'a'",
        "file       /bin/prog",
        "folder     /home",
        "shape      2 instances, 4 replicas of 2 IPUs, 1 IPU-Link domain",
        "hosts      localhost",
        "partition  p (8 IPUs on localhost:8090), created",
        "MPI        openmpi, library /ompi/lib/libmpi.so.40",
        "OMPI_MCA_btl='^ofi,tcp'",
        "/ompi/bin/mpirun --bind-to none -n 2",
        "instance 1 on localhost, replicas 2-3, offset 2",
        "    POPDIST_REPLICA_INDEX_OFFSET=2",
        "    unset MPI4PY_MPIABI",
    ):
        assert piece in text


def test_the_json_has_the_same_numbers(capsys):
    line = ["--num-instances=2", "--num-replicas=4", "--vipu-partition=p", "A=b c", "true", "x y"]
    assert main(["--dry-run", "--print-topology=yes", "--format", "json", *line]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["program"] == ["true", "x y"]
    assert os.access(document["executable"], os.X_OK)
    assert (
        document["num_instances"],
        document["num_replicas"],
        document["ipus_per_replica"],
        document["num_ilds"],
    ) == (
        2,
        4,
        1,
        1,
    )
    assert document["partition"] == {
        "name": "p",
        "server": "localhost:8090",
        "ipus": 4,
        "allocation": None,
        "action": "created",
    }
    assert document["command"]["argv"][0] == document["mpi"]["launcher"]
    first, second = document["instances"]
    assert (first["host"], first["replicas"], second["replicas"], second["offset"]) == (
        "localhost",
        [0, 1],
        [2, 3],
        2,
    )
    assert set(first["cpus"]) <= set(range(os.cpu_count() or 1))
    assert first["memory_nodes"]
    assert second["environment"]["POPDIST_REPLICA_INDEX_OFFSET"] == "2"
    assert second["environment"]["A"] == "b c"
    assert second["environment"]["IPUOF_VIPU_API_GCD_ID"] == "1"


def test_the_layout_of_other_hosts_is_not_made_up():
    job, options = of("--num-instances 2 x", hosts=("h0", "h1"))
    assert "CPUs and memory nodes are determined on that host" in as_text(job, options)
    assert json.loads(as_json(job, options))["instances"][1]["cpus"] is None


def test_variables_inherited_by_other_hosts_are_named_but_not_shown(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    job, options = of("--num-instances 2 --format json x", hosts=("h0", "h1"), SECRET_TOKEN="hunter2")
    text = report(job, options)
    assert "hunter2" not in text + as_text(job, options)
    assert "SECRET_TOKEN" in json.loads(text)["instances"][0]["inherited"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_dry_run_leaves_no_trace(tmp_path, form):
    """Nothing is written or started, according to the interpreter's audit events and to the folder."""
    line = ["--dry-run", f"--format={form}", "--num-instances=2", "--vipu-partition=p", "--update-partition=yes"]
    line += ["--reset-partition=yes", "--export-config=o.toml", "--log-dir=logs", "--executable-cache-path=cache"]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "poprun_py/audited_command.py"), *line, "touch", "made"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    only_line = "poprun-py: --export-config o.toml: nothing is written with --dry-run; leave out one of them\n"
    assert (done.returncode, done.stderr) == (0, only_line)
    assert "SIDE EFFECT" not in done.stdout
    assert list(tmp_path.iterdir()) == []
