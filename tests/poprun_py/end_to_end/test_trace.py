"""--trace: the launcher and every instance record what they do on one time axis."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.report_data import report_data
from popdist_py.trace import Category
from tests.helpers.mpi_jobs import PROGRAMS
from tests.helpers.warm_processes import WITH_GCL, warm_python

POPRUN = str(Path(sys.executable).parent / "poprun-py")
PROGRAM = str(PROGRAMS / "gcl/collectives/traced.py")


def named(process, *names):
    """The spans of a process with one of these names."""
    known = process.trace.names
    return [span for span in process.spans if known[int(span["name"])].name in names]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace") / "run"
    command = [POPRUN, "--trace", str(folder), "--num-instances", "2", *warm_python(*WITH_GCL), PROGRAM]
    subprocess.run(command, check=True, timeout=120)
    return read_run(folder)


def test_every_process_has_a_trace(run):
    assert [process.label for process in run.processes] == ["launcher", "instance 0", "instance 1"]
    assert not any(process.open for process in run.processes)


def test_the_launcher_records_when_each_instance_ran(run):
    launcher, *instances = run.processes
    programs = named(launcher, "program")
    assert {launcher.trace.names[int(span["name"])].args["rank"] for span in programs} == {0, 1}
    for span in programs:
        instance = instances[launcher.trace.names[int(span["name"])].args["rank"]]
        assert span["begin"] < instance.records["begin"].min()
        assert span["end"] > instance.records["end"].max()


def test_the_collectives_of_all_instances_have_the_same_numbers_and_overlap(run):
    first, second = (named(process, "all_reduce") for process in run.instances)
    assert [span["value"] for span in first] == [span["value"] for span in second]
    assert len(first) == 5
    for span, other in zip(first, second, strict=True):
        assert span["begin"] < other["end"]
        assert other["begin"] < span["end"]
    late = [int(other["begin"]) - int(span["begin"]) for span, other in zip(first, second, strict=True)]
    assert median(late) > 0.03e9, "instance 1 is 0.05 s late, unless the machine stops instance 0"


def test_a_collective_is_recorded_with_its_bytes_and_operator(run):
    process = run.instances[0]
    name = process.trace.names[int(named(process, "all_reduce")[0]["name"])]
    assert name.category == Category.COLLECTIVES.value
    assert (name.args["bytes"], name.args["operator"], name.args["transport"]) == (4000, "add", "shared_memory")


def test_the_bandwidth_of_collectives_is_a_share_of_that_of_the_hosts_memory(run):
    data = report_data(analyse(run))
    assert data["collectives"]
    for row in data["collectives"]:
        assert row["limit"] == "memory of the host"
        limit = row["limit_gigabytes_per_second"]
        assert 0.1 < limit < 1000
        assert row["share_of_limit"] == pytest.approx(row["bandwidth_gigabytes_per_second"] / limit)
        assert row["bandwidth_gigabytes_per_second"] == pytest.approx(
            row["bytes"] / row["median_moving_seconds"] / 1e9
        )


def test_spans_nest(run):
    process = run.instances[0]
    (training,) = named(process, "training")
    for span in named(process, "all_reduce"):
        assert training["begin"] <= span["begin"] <= span["end"] <= training["end"]


def test_a_folder_with_another_run_is_refused(tmp_path):
    (tmp_path / "1.trace").touch()
    command = [POPRUN, "--trace", str(tmp_path), "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "holds the trace of another run; name a new folder" in done.stderr


def test_values_of_variables_are_in_no_trace_and_only_the_user_can_read_one(tmp_path: Path) -> None:
    command = [
        POPRUN,
        "--trace",
        str(tmp_path / "run"),
        "--mpi-local-args",
        "-x KEY=swordfish",
        "TOKEN=hunter2",
        "true",
    ]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
    traces = list((tmp_path / "run").iterdir())
    assert traces
    for path in traces:
        content = path.read_bytes()
        assert b"TOKEN=" in content
        assert b"hunter2" not in content
        assert b"swordfish" not in content
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("folder", ["/dev/null", "/proc/trace", "/dev/full/trace"])
def test_a_folder_that_cannot_be_used_is_refused(folder: str) -> None:
    done = subprocess.run(
        [POPRUN, "--trace", folder, "true"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert f"--trace {folder}: it cannot be used: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_of_which_one_instance_alone_can_record_a_trace_ends(launch, mpi, tmp_path: Path) -> None:
    """As where the disk is full: instances compare their clocks if any of them records."""
    option = ("--instance-mpi-local-args", f"1:-x IPU_EMU_TRACE={tmp_path}/t")
    meet = (*warm_python(*WITH_GCL), str(PROGRAMS / "poprun_py/mpi/host_collectives.py"), "meet")
    status, _, err = launch("--mpi", mpi, "--num-instances", "2", *option, *meet).finish(timeout=100)
    assert (status, err) == (0, b"")
    assert len(list((tmp_path / "t").glob("*.trace"))) == 1


def test_a_trace_that_does_not_fit_is_said_to_be_incomplete(tmp_path: Path) -> None:
    program = "from popdist_py import trace\nfor _ in range(40_000): trace.instant('x')"
    command = [POPRUN, "--trace", tmp_path / "run", "--backend", "mpi", sys.executable, "-c", program]
    job = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"IPU_EMU_TRACE_LIMIT": "1"}, check=True
    )
    (said,) = [line for line in job.stderr.splitlines() if "is incomplete" in line]
    assert said.startswith(f"poprun-py: --trace {tmp_path / 'run'} is incomplete: ")
    assert said.endswith(" records are missing; free space on its disk, or raise IPU_EMU_TRACE_LIMIT (MiB)")
