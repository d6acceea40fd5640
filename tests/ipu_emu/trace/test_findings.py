"""Findings: reports of real runs, each with one fault, name that fault first, and their numbers add up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ipu_emu.trace import read_run
from ipu_emu.trace.findings import Cause, RunAnalysis, analyse
from popdist_py.trace import Category, Kind, Recorder
from popdist_py.trace.records import key_of
from tests.helpers.mpi_jobs import PROGRAMS
from tests.helpers.warm_processes import EMULATOR, warm_python

POPRUN = str(Path(sys.executable).parent / "poprun-py")
PROGRAM = str(PROGRAMS / "ipu_emu/traced_training.py")

#: Fault -> the cause that must be named first, instances, IPUs per replica.
FAULTS = {
    "straggler": (Cause.STRAGGLER, 2, 1),
    "data": (Cause.DATA, 2, 1),
    "small": (Cause.SMALL_MESSAGES, 2, 1),
    "pipeline": (Cause.PIPELINE, 1, 2),
}


def run(folder: Path, fault: str, instances: int = 2, ipus: int = 1) -> RunAnalysis:
    shape = ["--num-instances", str(instances), "--ipus-per-replica", str(ipus)]
    program = [*warm_python(*EMULATOR), PROGRAM, fault]
    subprocess.run([POPRUN, "--trace", folder, *shape, *program], check=True, timeout=200)
    return analyse(read_run(folder))


def printed(*arguments: str | Path) -> str:
    """What ``ipu-emu report`` prints."""
    command = [*warm_python(*EMULATOR), "-m", "ipu_emu", "report", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module", params=FAULTS)
def faulty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cause, RunAnalysis]:
    cause, instances, ipus = FAULTS[request.param]
    return cause, run(tmp_path_factory.mktemp("trace") / "run", request.param, instances, ipus)


def test_the_cause_is_named_first(faulty: tuple[Cause, RunAnalysis]) -> None:
    cause, analysis = faulty
    assert analysis.findings[0].cause is cause, analysis.findings
    if cause is Cause.STRAGGLER:
        assert "wait in collectives for instance 1" in analysis.findings[0].text
    if cause is Cause.PIPELINE:
        assert analysis.findings[0].text.startswith("IPU 0")


def test_categories_add_up_to_the_wall_time(faulty: tuple[Cause, RunAnalysis]) -> None:
    for use in faulty[1].uses:
        assert sum(use.categories.values()) == pytest.approx(use.seconds, rel=0.01)
        first, last = use.process.window
        assert sum(use.stepping.values()) == pytest.approx((last - first) / 1e9, rel=0.01)
        assert use.steps == 20


def test_the_bytes_of_collectives_are_those_that_were_reduced(faulty: tuple[Cause, RunAnalysis]) -> None:
    """Three weights of 256 x 256 floats in each of 20 steps, and once before the first."""
    cause, analysis = faulty
    if cause is Cause.PIPELINE:
        assert not analysis.collectives
        return
    gradients = [call for call in analysis.collectives if call.nbytes == 3 * 256 * 256 * 4]
    assert sum(len(call.begins) for call in gradients) == 21
    assert sum(len(call.begins) for call in analysis.collectives) == 21 + (
        6000 if cause is Cause.SMALL_MESSAGES else 0
    )


def test_a_run_without_faults_has_none(tmp_path: Path) -> None:
    analysis = run(
        tmp_path / "run", "fine", 1
    )  # one instance, because one of two may be a straggler on a busy machine
    (finding,) = analysis.findings  # of a run this short, the start is a large part
    assert finding.cause is Cause.OUTSIDE
    assert finding.share == pytest.approx(1 - analysis.uses[0].stepping_seconds / analysis.uses[0].seconds)
    assert finding.text.endswith("start of Python and imports")
    assert "compute" in analysis.summary


def test_a_run_without_steps_says_so(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "run"), limit=1 << 20, about={"pid": 1, "host": "h", "boot": "b"})
    recorder.record(key_of(Kind.SPAN, recorder.name("load", Category.USER)), 1_000, 2_000)
    recorder.close()
    assert [finding.cause for finding in analyse(read_run(tmp_path / "run")).findings] == [Cause.NO_STEPS]


def test_the_command_prints_and_compares(tmp_path: Path) -> None:
    run(tmp_path / "one", "pipeline", 1, 2)
    run(tmp_path / "two", "fine")
    assert "IPU 0 of the pipeline works" in printed(tmp_path / "one")
    data = json.loads(printed(tmp_path / "one", "--format", "json"))
    assert data["stages"]["imbalance"] > 1.25
    both = printed(tmp_path / "one", tmp_path / "two")
    assert "A step takes" in both
    assert "With 2 times the replicas" in both
