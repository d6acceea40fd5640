"""--trace of jobs that are killed, restarted, on several hosts with other clocks, and of forked data workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ipu_emu.trace import Run, read_run
from ipu_emu.trace.bandwidth import Limit, bandwidths
from ipu_emu.trace.collective_calls import collective_calls
from ipu_emu.trace.findings import Cause, analyse
from popdist_py.trace import Category
from tests.helpers.mpi_jobs import PROGRAMS
from tests.helpers.network_namespaces import hosts, needs_hosts
from tests.helpers.warm_processes import EMULATOR, WITH_GCL, warm_python
from tests.poprun_py.helpers.several_hosts import Job

POPRUN = str(Path(sys.executable).parent / "poprun-py")
DYING = str(PROGRAMS / "gcl/collectives/dying.py")
TRACED = str(PROGRAMS / "gcl/collectives/traced.py")
TRAINING = str(PROGRAMS / "ipu_emu/traced_training.py")

#: The monotonic clocks of all hosts but the first are 1000 s ahead.
OTHER_CLOCKS = 'case $(hostname) in *h0) exec "$@";; *) exec unshare --time --fork --monotonic 1000 "$@";; esac'


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A job whose instance 1 is killed in its first start."""
    folder = tmp_path_factory.mktemp("trace") / "run"
    command = [POPRUN, "--trace", folder, "--num-instances", "2", "--max-restarts", "1"]
    command += [*warm_python(*WITH_GCL), DYING]
    subprocess.run(command, check=True, timeout=120)
    return read_run(folder)


def test_the_spans_of_a_killed_instance_reach_until_its_death(restarted: Run) -> None:
    launcher, _, killed, *_ = restarted.processes
    assert [name for name, _ in killed.open] == ["training", "own work"]
    ends = [
        record["begin"]
        for record in launcher.records
        if launcher.trace.names[int(record["name"])].name == "end of the instance"
    ]
    assert min(ends) - killed.records["begin"].max() < 1e9
    calls = [span for span in killed.spans if killed.trace.names[int(span["name"])].name == "all_reduce"]
    assert len(calls) == 21


def test_the_report_says_where_it_died(restarted: Run) -> None:
    (death,) = [finding for finding in analyse(restarted).findings if finding.cause is Cause.DEATH]
    assert "instance 1 on " in death.text
    assert "ended (SIGKILL) " in death.text
    assert "in the middle of: training > own work; then instance 0 ended" in death.text


def test_numbers_are_those_of_the_last_start(restarted: Run) -> None:
    labels = ["instance 0", "instance 1", "instance 0, start 2", "instance 1, start 2"]
    assert [process.label for process in restarted.processes] == ["launcher", *labels]
    analysis = analyse(restarted)
    assert [use.process.label for use in analysis.uses] == labels[2:]
    (calls,) = analysis.collectives
    assert len(calls.begins) == 30
    assert list(calls.instances) == [0, 1]


def test_forked_data_workers_have_traces_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    subprocess.run([POPRUN, "--trace", folder, *warm_python(*EMULATOR), TRAINING, "workers"], check=True, timeout=120)
    run = read_run(folder)
    assert [process.label for process in run.instances] == ["instance 0"]
    workers = [process for process in run.processes if process.label.startswith("instance 0, process ")]
    assert len(workers) == 2
    prepared = 0
    for worker in workers:
        for span in worker.spans:
            name = worker.trace.names[int(span["name"])]
            assert (name.name, name.category) == ("prepare data", Category.DATA.value)
            prepared += 1
    assert prepared >= 20
    assert not [finding for finding in analyse(run).findings if finding.cause is Cause.DEATH]


@needs_hosts
def test_hosts_with_other_clocks_are_aligned(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (tmp_path / "hosts").mkdir()
    with hosts(2, tmp_path / "hosts") as where:
        options = ["--trace", str(folder), "--host", ",".join(where.names), "--num-instances", "2"]
        program = [*warm_python(*WITH_GCL), TRACED, "4000000"]  # a transfer that takes longer than the clocks' error
        job = Job(where, [*options, "sh", "-c", OTHER_CLOCKS, "sh", *program])
        try:
            code, _, err = job.finish()
        finally:
            job.end()
    assert code == 0, err
    run = read_run(folder)
    first, second = run.instances
    assert (first.host, second.host) == tuple(where.names)
    assert second.offset - first.offset == pytest.approx(-1000e9, abs=5e9)
    assert second.error < 5e6
    (calls,) = collective_calls(run)
    assert len(calls.begins) == 5
    (rate,) = bandwidths(run, [calls])
    assert (rate.limit, rate.share) == (Limit.BEST, 1.0), "nobody knows how fast these interfaces are"
    assert rate.bounded_rate == pytest.approx(calls.nbytes / rate.seconds / 1e9), "each host sends its gradients once"
    error = first.error + second.error
    late = calls.begins[:, 1] - calls.begins[:, 0]
    assert (late > 0.03e9).all(), "instance 1 is 0.05 s late"
    assert (calls.begins.max(1, keepdims=True) - error < calls.ends).all(), "nobody ends before the last has begun"
