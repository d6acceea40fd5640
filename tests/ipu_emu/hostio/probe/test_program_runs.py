"""Program runs: the data of the three modes, the reports of feeds, and the analysis of a program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner, Result

from ipu_emu import popart
from ipu_emu.cli import main
from ipu_emu.errors import EmulatorError, FeedError
from ipu_emu.hostio import DataMode, Feed
from ipu_emu.hostio.data.data_modes import mode_of
from ipu_emu.hostio.probe.bottleneck_analysis import advice, overhead_of
from ipu_emu.hostio.probe.probe import FeedMeasurement, measurement_in
from ipu_emu.hostio.probe.program_runs import MeasuredProgram, ProgramRun, counts_of, job_result, reports
from tests.helpers.mpi_jobs import PROGRAMS

DATA = {"x": np.full((20, 3), 9, np.float32), "label": np.arange(20) % 5}


def fails(sample: Any) -> Any:
    if sample["label"] == 4:
        raise ValueError("must not be asked for")
    return sample


@pytest.mark.parametrize("mode", [DataMode.GENERATED, DataMode.SYNTHETIC])
@pytest.mark.parametrize("stream", [False, True])
def test_made_up_data_look_like_real_ones(mode: DataMode, stream: bool) -> None:
    source = (
        (lambda: iter([{name: array[row] for name, array in DATA.items()} for row in range(20)])) if stream else DATA
    )
    with Feed(source, micro_batch=4, mode=mode, prepare=fails, steps=10, epochs=3) as feed:
        steps = [{name: array.copy() for name, array in step.items()} for step in feed]
    assert len(steps) == 10
    for step in steps:
        assert sorted(step["label"]) == [0, 1, 2, 3]
        assert len(np.unique(step["x"])) == 12
        np.testing.assert_array_equal(step["x"], steps[0]["x"])


def test_made_up_data_end_where_real_ones_do() -> None:
    for mode in DataMode:
        assert len(list(Feed(DATA, micro_batch=4, epochs=3, start=2, mode=mode))) == 13


def test_only_generated_data_are_moved() -> None:
    steps = {mode: [step["x"] for step in Feed(DATA, mode=mode, workers=2)] for mode in DataMode}
    assert len({array.ctypes.data for array in steps[DataMode.SYNTHETIC]}) == 1
    assert len({array.ctypes.data for array in steps[DataMode.GENERATED]}) > 1


def test_modes_by_environment() -> None:
    assert mode_of({}) is DataMode.REAL
    assert mode_of({"TF_POPLAR_FLAGS": "--use_ipu_model --use_synthetic_data"}) is DataMode.SYNTHETIC
    assert (
        mode_of({"IPU_EMU_DATA_MODE": "Generated", "TF_POPLAR_FLAGS": "--use_synthetic_data"}) is DataMode.GENERATED
    )
    with pytest.raises(EmulatorError, match=r"IPU_EMU_DATA_MODE=fake.*real, generated, synthetic"):
        mode_of({"IPU_EMU_DATA_MODE": "fake"})


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ("--synthetic_data_categories=infeed,outfeed", DataMode.SYNTHETIC),
        ("--use_synthetic_data --synthetic_data_categories=seed,parameters", DataMode.REAL),
        ("--use_synthetic_data=false", DataMode.REAL),
    ],
)
def test_flags_of_tensorflow_say_what_is_synthetic(flags: str, mode: DataMode) -> None:
    assert mode_of({"TF_POPLAR_FLAGS": flags}) is mode


def test_a_category_that_does_not_exist_is_named() -> None:
    with pytest.raises(EmulatorError, match=r"'infeeds'.*infeed, .*'infeed'"):
        mode_of({"TF_POPLAR_FLAGS": "--synthetic_data_categories=infeeds"})


def test_modes_by_name() -> None:
    assert Feed(DATA, mode="Synthetic").mode is DataMode.SYNTHETIC
    with Feed(DATA, micro_batch=4, mode="real") as feed:
        np.testing.assert_array_equal(next(iter(feed))["x"].ravel(), 9)
    for wrong in ("fake", 3):
        with pytest.raises(EmulatorError, match=f"mode={wrong!r}: no such mode; use real, generated, synthetic"):
            Feed(DATA, mode=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["timeout", "slow"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), "2", None])
def test_waits_are_seconds_above_0(name: str, value: Any) -> None:
    with pytest.raises(EmulatorError, match=f"A feed cannot have {name}={value!r}; give a number of seconds above 0"):
        Feed(DATA, **{name: value})


def test_a_source_shorter_than_a_step_cannot_be_replaced() -> None:
    with pytest.raises(FeedError, match="fewer samples than one step"):
        Feed(iter([1, 2]), micro_batch=3, mode=DataMode.GENERATED)


def runs(instances: int, real: float, generated: float, synthetic: float, cpus: float = 1.0) -> list[ProgramRun]:
    rates = {"real": real, "generated": generated, "synthetic": synthetic}
    return [ProgramRun(mode, instances, rate, rate / 1e3, 0.1, cpus, 1e8, 1) for mode, rate in rates.items()]


@pytest.mark.parametrize(
    ("rates", "limit", "preparing", "moving"),
    [
        ((100, 100, 100), "compute", 0.0, 0.0),
        ((96, 98, 100), "compute", 0.0204, 0.0196),
        ((50, 100, 100), "preparation", 0.5, 0.0),
        ((50, 50, 100), "bandwidth", 0.0, 0.5),
        ((101, 99, 100), "compute", 0.0, 0.0102),
    ],
)
def test_gaps(rates: tuple[float, float, float], limit: str, preparing: float, moving: float) -> None:
    overhead = overhead_of(runs(1, *rates))
    assert overhead.limit == limit
    assert overhead.preparing == pytest.approx(preparing, abs=1e-3)
    assert overhead.moving == pytest.approx(moving, abs=1e-2)


def test_advice_in_words() -> None:
    said = advice(runs(1, 99, 100, 100) + runs(2, 120, 190, 200, cpus=99.0))
    assert said[:4] == [
        "1 instance: limited by compute; host I/O takes 1% of the time.",
        "2 instances: limited by data preparation, which takes 37% of the time.",
        "The share of host I/O grows from 1% on 1 to 40% on 2 instances: it will limit scaling.",
        "Try: more hosts: the CPUs of an instance are fully used",
    ]


def test_impossible_numbers_are_questioned() -> None:
    said = advice(runs(1, 99, 100, 100) + runs(2, 150, 120, 200))
    assert said[0] == (
        "2 instances: no result, because measurements contradict each other: too few steps, or other programs are "
        "using this machine; run again with more --steps."
    )
    assert said[1] == "1 instance: limited by compute; host I/O takes 1% of the time."
    assert not any("2 instances" in line for line in said[1:])


def test_impossible_numbers_alone_give_no_verdict() -> None:
    (said,) = advice([replace(run, steps=20) for run in runs(1, 150, 120, 200)])
    assert said.endswith(
        "(20 timed steps): too few steps, or other programs are using this machine; run again with --steps 100."
    )


def test_counts() -> None:
    assert counts_of("4,1, 2,2") == [1, 2, 4]
    assert counts_of("")[0] == 1
    with pytest.raises(EmulatorError, match="--instances 1,x"):
        counts_of("1,x")


def test_counts_in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first instance measures."""
    names = {"NUM_TOTAL_REPLICAS": 5, "NUM_LOCAL_REPLICAS": 1, "REPLICA_INDEX_OFFSET": 1, "NUM_IPUS_PER_REPLICA": 1}
    for name, value in names.items():
        monkeypatch.setenv(f"POPDIST_{name}", str(value))
    monkeypatch.setenv("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "1")
    assert counts_of("") == [1, 2, 4]
    done = CliRunner().invoke(main, ["hostio", __file__])
    assert (done.exit_code, done.output) == (0, "")


PROGRAM = (PROGRAMS / "ipu_emu/probed_training.py").read_text()


def with_a_result(*arguments: str) -> Result:
    """The output of the command, which is run again if other programs used the machine, as it advises."""
    for _ in range(5):
        done = CliRunner().invoke(main, ["hostio", "--instances", "1", *arguments])
        if "no result, because" not in done.output:
            break
    return done


def test_the_command_finds_the_limit(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    files = {suffix: tmp_path / f"out.{suffix}" for suffix in ("json", "html", "png")}
    options = [text for suffix, file in files.items() for text in (f"--{suffix}", str(file))]
    done = with_a_result("--steps", "10", *options, str(program))
    assert done.exit_code == 0, done.output
    assert "1 instance: limited by data preparation" in done.output
    report = json.loads(files["json"].read_text())
    assert [run["mode"] for run in report["runs"]] == ["real", "generated", "synthetic"]
    assert report["overheads"][0]["limit"] == "preparation"
    assert 0.5 < report["overheads"][0]["preparing"] < 1
    assert report["runs"][0]["waiting"] > 0.5
    assert "limited by data preparation" in files["html"].read_text()
    assert files["png"].read_bytes().startswith(b"\x89PNG")


def test_programs_without_a_feed_are_reported(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("print('no data here')")
    done = CliRunner().invoke(main, ["hostio", "--instances", "1", str(program)])
    assert done.exit_code == 2
    assert (
        "0 of 1 instance reported a measurement with real data (exit code 0). The program must run more than 3 steps"
        in done.output
    )
    assert "no data here" in done.output


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"steps": None}, "steps is 'None'"),
        ({"seconds": float("inf")}, "seconds is 'inf'"),
        ({"seconds": 0.0}, "of no instance, or of no step"),
        ({"samples": -3}, "samples is '-3'"),
        ({"instance": 1}, "of no instance, or of no step"),
        ({"mode": "fake"}, "'fake' is not a valid DataMode"),
        ({"more": 1}, "it must be an object with instance, instances, mode"),
    ],
)
def test_reports_are_read_strictly(change: dict[str, Any], why: str) -> None:
    good = FeedMeasurement(0, 1, "real", 10, 40, 480, 1.5, 0.5, 1.0, 1 << 20, 0, 2)
    assert measurement_in(json.dumps(asdict(good)).encode()) == good
    with pytest.raises(ValueError, match=re.escape(why)):
        measurement_in(json.dumps(asdict(good) | change).encode())


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "9" * 5000, "\xff", "[]", " " * 70_000])
def test_an_invalid_report_ends_the_command_with_one_sentence(tmp_path: Path, text: str) -> None:
    """No job is started."""
    (tmp_path / "other.json").write_text(text)
    program = MeasuredProgram(("train.py",), replicas_per_instance=1, steps=10, timeout=1.0)
    end = subprocess.CompletedProcess([], 0, "")
    with pytest.raises(EmulatorError, match=r"train\.py.*other\.json"):
        reports(tmp_path, program, end, 1, DataMode.REAL)


def for_ever(step: Callable[[], object]) -> None:
    while True:
        step()


def measured(folder: Path, step: Callable[[], object]) -> Any:
    """The report on a program that repeats the same step forever."""
    with pytest.raises((SystemExit, StopIteration)):
        for_ever(step)
    (report,) = (json.loads(file.read_text()) for file in folder.glob("*.json"))
    return report


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder to which a feed or a session writes its report after twelve steps."""
    monkeypatch.setenv("IPU_EMU_FEED_REPORTS", str(tmp_path))
    monkeypatch.setenv("IPU_EMU_FEED_STEPS", "12")
    return tmp_path


@pytest.mark.parametrize("mode", ["real", "generated", "synthetic"])
def test_callbacks_are_measured(probed: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("IPU_EMU_DATA_MODE", mode)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4])
    y = builder.aiOnnx.add([x, x])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(2, [y]), device)
    session.prepareDevice()
    calls = []

    def give(id: str, prefetch: bool) -> Any:
        calls.append(id)
        time.sleep(0.002)
        return np.ones(4, np.float32)

    out = np.zeros(4, np.float32)
    stepio = popart.PyStepIOCallback(give, lambda id: None, lambda id: out, lambda id: None)
    report = measured(probed, lambda: session.run(stepio))
    assert (report["mode"], report["steps"], report["samples"]) == (mode, 12, 12 * 8)
    assert len(calls) == (2 * (12 + 3) if mode == "real" else 1)
    assert (report["waited_seconds"] >= 12 * 2 * 0.002) is (mode == "real")


def test_programs_that_hand_over_their_data_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPU_EMU_FEED_STEPS", "12")
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [64])
    y = builder.aiOnnx.add([x, x])
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    runs = {}
    for mode in DataMode:
        monkeypatch.setenv("IPU_EMU_DATA_MODE", mode.value)
        monkeypatch.setenv("IPU_EMU_FEED_REPORTS", str(tmp_path / mode.value))
        (tmp_path / mode.value).mkdir()
        session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(2, [y]), device)
        session.prepareDevice()
        anchors = session.initAnchorArrays()

        def step(session: Any = session, anchors: Any = anchors) -> None:
            time.sleep(0.01)
            session.run(popart.PyStepIO({x: np.ones(128, np.float32)}, anchors))

        runs[mode.value] = job_result([FeedMeasurement(**measured(tmp_path / mode.value, step))])
    assert [run.steps for run in runs.values()] == [12, 12, 12]
    assert runs["real"].waiting > 0.6
    assert runs["synthetic"].waiting < 0.5
    assert runs["real"].samples_per_second < 64 * 2 / 0.01
    assert overhead_of(list(runs.values())).limit == "preparation"


def test_a_program_that_fails_is_no_measurement(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM + "        if step[0] > 20: raise KeyError('weights')\n")
    done = CliRunner().invoke(main, ["hostio", "--instances", "1", "--steps", "30", str(program)])
    assert done.exit_code == 2
    assert "with real data failed (exit code 1) after 4 of 30 timed steps; fix it" in done.output
    assert "KeyError: 'weights'" in done.output


@pytest.mark.parametrize("option", ["--json", "--png", "--html"])
def test_files_that_cannot_be_written_are_reported_before_anything_runs(tmp_path: Path, option: str) -> None:
    program = tmp_path / "train.py"
    program.write_text("open('ran', 'w')")
    for file, reason in ((tmp_path / "none" / "out", "there is no folder"), (tmp_path, "it is a folder")):
        done = CliRunner().invoke(main, ["hostio", "--instances", "1", option, str(file), str(program)])
        assert done.exit_code == 2
        assert f"{option} {file} cannot be written: {reason}" in done.output


def test_sigterm_ends_the_job_too(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(300)")
    command = [sys.executable, "-c", "from ipu_emu.cli import main; main()", "hostio", "--instances", "1"]
    with subprocess.Popen([*command, str(program)], cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        instance = int((tmp_path / "pid").read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
    while psutil.pid_exists(instance):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_program_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    done = CliRunner().invoke(main, ["hostio", str(tmp_path / "pipe.py")])
    assert done.exit_code == 2
    assert f"{tmp_path / 'pipe.py'} is not a file; name the program to measure" in done.output
