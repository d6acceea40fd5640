"""ipu-emu scale: predictions next to measured rows, and experiments, as text, data, pictures and pages."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ipu_emu.cli import main
from ipu_emu.cli.output.chart import Chart, document
from ipu_emu.hostio.probe import program_runs
from ipu_emu.predict.calibration.profile import SHIPPED_ROWS
from ipu_emu.predict.experiment import measuring
from ipu_emu.predict.experiment.measuring import Execute
from ipu_emu.predict.experiment.plan import Configuration, Plan
from ipu_emu.predict.experiment.step_use import StepUse

RESNET = "scale resnet50 --batch 20 --accumulation 16 --recompute --bn-span 2"


def run(command: str) -> Result:
    return CliRunner().invoke(main, command.split(), catch_exceptions=False)


def test_text() -> None:
    done = run(f"{RESNET} --sizes 16..256 --strong")
    assert done.exit_code == 0
    assert "strong scaling" in done.stdout
    assert len(re.findall(r"^ +(?:16|32|64|128|256)  ", done.stdout, flags=re.MULTILINE)) == 5


def test_sizes_that_do_not_divide_the_accumulation_are_named() -> None:
    done = run("scale resnet50 --sizes 16..256 --accumulation 6 --strong")
    assert "of 6 on 16 IPUs cannot be divided for 64, 128, 256 IPUs, which are left out" in done.stderr


def test_measured_rows_are_next_to_their_predictions(tmp_path: Path) -> None:
    rows, page = tmp_path / "rows.csv", tmp_path / "scale.html"
    rows.write_text(SHIPPED_ROWS.read_text())
    facts = json.loads(run(f"{RESNET} --measured {rows} --format json --output {page}").stdout)
    assert len(facts["measured"]) == 5
    assert all(abs(row["error"]) < 0.045 for row in facts["measured"])
    assert {"ideal_samples_per_second", "amdahl_samples_per_second", "gustafson_samples_per_second"} <= set(
        facts["points"][0]
    )
    (data,) = re.findall(r'id="facts">\n(.*?)\n</script>', page.read_text(), flags=re.DOTALL)
    assert json.loads(data) == facts


def test_the_kind_of_the_system_is_kept() -> None:
    mk2, bow = (
        json.loads(run(f"{RESNET} --sizes 16,32 --system {name} --format json").stdout)["points"][1]
        for name in ("pod16", "bow-pod16")
    )
    assert bow["samples_per_second"] > 1.2 * mk2["samples_per_second"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("scale", "give one of these"),
        (f"{RESNET} --weak --strong", "one at a time"),
        (f"{RESNET} --sizes many", "--sizes many is not valid"),
        (f"{RESNET} --measured /nonexistent", "cannot be read"),
        (f"{RESNET} --measured /dev/zero", "/dev/zero cannot be read: It is a pipe or a device"),
        ("scale resnet50 --sizes 16", "--sizes 16 is one size; give two at least"),
        ("scale resnet50 --replicas 5", "--replicas follows from --sizes"),
        ("scale resnet50 --hosts 5", "--hosts follows from --sizes"),
        ("scale --run", "give one of these"),
        ("scale resnet50 --seconds 9", "--seconds is of --run"),
        ("scale --run train.py --sizes 16..32", "--sizes 16..32: not a list of instances x replicas"),
        ("scale --run train.py --epochs 3", "--epochs has no effect on --run; write -- before the program"),
        ("scale --run train.py --timeout nan", "--timeout nan is not possible"),
        ("scale --run train.py --timeout 0", "--timeout 0 is not possible"),
        ("scale --run train.py --accumulations 0,1", "--accumulations 0,1: not a list of numbers from 1"),
        ("scale --run --output x.html train.py", "--output x.html: pictures are .svg or .png"),
        ("scale --compare a b --run", "--run has no effect on --compare"),
        ("scale --compare a b resnet50", "give one of these"),
        ("scale --compare /nonexistent /nonexistent", "--compare /nonexistent cannot be read"),
    ],
)
def test_mistakes(command: str, said: str) -> None:
    done = run(command)
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps of 64 samples on two cores in place of the launcher; the names of the configurations that ran."""
    ran: list[str] = []

    def launched(plan: Plan, cache: Path) -> Execute:
        def execute(configuration: Configuration, folder: Path, seconds: float) -> StepUse:
            ran.append(configuration.name)
            work = 0.64 / min(configuration.instances, 2) + 0.1
            moving = 0.05 * (configuration.instances > 1)
            parts = (work - 0.1, 0.0, 0.0, moving, 0.1)
            return StepUse(sum(parts), parts=parts, calls=1.0, nbytes=5e4, samples=64.0)

        return execute

    monkeypatch.setattr(measuring, "launched", launched)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    return ran


def test_a_measured_program(tmp_path: Path, machine: list[str]) -> None:
    names = {name: tmp_path / f"scale.{name}" for name in ("json", "html", "svg")}
    options = f"--json {names['json']} --html {names['html']} --output {names['svg']}"
    done = run(f"scale --run --seconds 1 {options} -- python train.py --epochs 3")
    assert machine[:6] == ["1x1", "1x2", "2x2", "1x4", "2x4", "4x4"]
    assert "python train.py --epochs 3 on 2 cores, in 6 configurations" in done.stderr
    facts = json.loads(names["json"].read_text())
    assert facts["scaling"] == "strong"
    assert facts["terms"]["t"]["value"] == pytest.approx(0.01)
    assert facts["terms"]["c"]["value"] == pytest.approx(0.1)
    four = facts["configurations"][-1]
    assert four["speedup"] == pytest.approx(0.74 / 0.47)
    assert four["efficiency"] == pytest.approx(0.74 / 0.47 / 4)
    assert four["limits"][0]["text"] == "4 instances share 2 cores: compute cannot scale here"
    assert facts["laws"]["at_4"]["Amdahl"] == pytest.approx(1 / (0.1 / 0.74 + 0.64 / 0.74 / 4))
    assert "4x4: 4 instances share 2 cores: compute cannot scale here" in done.stdout
    assert (
        "their 2.5x, 62.5 %, is Gustafson's law for scaled work; Amdahl's, for fixed work, is 1.6x, 40%"
        in done.stdout
    )
    page = names["html"].read_text()
    (data,) = re.findall(r'id="facts">\n(.*?)\n</script>', page, flags=re.DOTALL)
    assert json.loads(data) == facts
    assert "://" not in page.replace("http://www.w3.org/", "")
    assert page.count("stroke-dasharray") >= 5  # each law goes beyond what was measured
    assert "where the time of a step goes" in names["svg"].read_text()


def test_two_experiments_are_compared(tmp_path: Path, machine: list[str]) -> None:
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    assert run(f"scale --run --sizes 1x1,2x2 --seconds 1 --json {before} -- train.py").exit_code == 0
    facts = json.loads(before.read_text())
    for row in facts["configurations"][1:]:
        row["efficiency_90"], row["efficiency"] = [0.9, 1.0], 0.95
    after.write_text(json.dumps(facts))
    done = run(f"scale --compare {before} {after}")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "within the intervals" in lines["1x1"]
    assert "changed: the 90 % intervals are apart" in lines["2x2"]
    after.write_text("[]")
    assert "b.json is no experiment; give files of --run --json" in run(f"scale --compare {before} {after}").stderr


def test_host_io_is_analysed_by_the_same_command(machine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(program: program_runs.MeasuredProgram, counts: list[int]) -> Iterator[program_runs.ProgramRun]:
        assert program.command == ("train.py", "--epochs", "3")
        for count in counts:
            for mode, rate in (("real", 10.0), ("generated", 90.0), ("synthetic", 100.0)):
                yield program_runs.ProgramRun(mode, count, rate * count, 0.0, 0.5, 1.0, 1.0, 0, 50)

    monkeypatch.setattr(program_runs, "measure", runs)
    done = run("scale --run --seconds 1 --host-io -- python train.py --epochs 3")
    assert "2 instances: limited by data preparation, which takes 89% of the time." in done.stdout


def test_the_options_of_an_experiment_reach_its_plan(machine: list[str]) -> None:
    command = "scale --run --sizes 1x1,2x2 --accumulations 1,3 --batch 4 --weak --seconds 1 --timeout 9 --format json"
    done = run(f"{command} --launcher --tag-output -- train.py {{accumulation}}")
    assert machine[:4] == ["1x1", "1x1 GA 3", "2x2", "2x2 GA 3"]
    assert json.loads(done.stdout)["scaling"] == "weak"


def test_no_text_ends_or_opens_an_element_of_the_page() -> None:
    facts = {"program": "<!--<script></script><b>&", "points": []}
    page = document(Path("page.html"), facts["program"], Chart(10, 10), facts).decode()
    (data,) = re.findall(r'id="facts">\n(.*?)\n</script>', page, flags=re.DOTALL)
    assert json.loads(data) == facts
    assert "<" not in data
    assert page.count("<script") == page.count("</script>") == 1
    assert "<!--" not in page
    assert "<b>" not in page


@pytest.mark.parametrize("option", ["--json", "--html", "--output"])
def test_a_file_that_cannot_be_written_is_found_before_measuring(
    tmp_path: Path, machine: list[str], option: str
) -> None:
    done = run(f"scale --run {option} {tmp_path}/absent/x.svg -- train.py")
    assert done.exit_code == 2
    assert f"x.svg cannot be written: there is no folder {tmp_path}/absent; create it first" in done.stderr
    assert not machine
