"""ipu-emu scale: predictions for several sizes next to measured rows, as text, data and pictures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ipu_emu.cli import main
from ipu_emu.cli.output.chart import Chart, document
from ipu_emu.predict.calibration.profile import SHIPPED_ROWS

RESNET = "scale resnet50 --batch 20 --accumulation 16 --recompute --bn-span 2"


def run(command: str) -> Result:
    return CliRunner().invoke(main, command.split(), catch_exceptions=False)


def test_text() -> None:
    done = run(f"{RESNET} --sizes 16..256 --strong")
    assert done.exit_code == 0
    assert "strong scaling" in done.stdout
    assert len(re.findall(r"^ +(?:16|32|64|128|256)  ", done.stdout, flags=re.MULTILINE)) == 5


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
        ("scale", "give one of both"),
        (f"{RESNET} --weak --strong", "one at a time"),
        (f"{RESNET} --sizes many", "--sizes many is not valid"),
        (f"{RESNET} --measured /nonexistent", "cannot be read"),
        (f"{RESNET} --measured /dev/zero", "/dev/zero cannot be read: It is a pipe or a device"),
        ("scale resnet50 --sizes 16", "--sizes 16 is one size; give two at least"),
        ("scale resnet50 --replicas 5", "--replicas follows from --sizes"),
        ("scale resnet50 --hosts 5", "--hosts follows from --sizes"),
        ("scale resnet50 --instances 1,2", "--instances is of --run"),
        ("scale --run train.py --sizes 16..32", "--sizes has no effect on --run"),
        ("scale --run train.py --timeout nan", "--timeout nan is not possible"),
        ("scale --run train.py --timeout 0", "--timeout 0 is not possible"),
    ],
)
def test_mistakes(command: str, said: str) -> None:
    done = run(command)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_measured_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of an experiment, without running one."""
    from ipu_emu.predict import experiment

    def execute(command: list[str], timeout: float) -> str:
        names = ("--num-instances", "--accumulation")
        instances, accumulation = (int(command[command.index(name) + 1]) for name in names)
        return f"step_seconds {0.01 * accumulation + 0.004 * instances}"

    monkeypatch.setattr(experiment, "launched", execute)
    monkeypatch.setattr(experiment, "check_idle", lambda force: not force)
    rows, page = tmp_path / "rows.csv", tmp_path / "page.html"
    command = f"scale --run train.py --accumulations 1,2,4 --batch 8 --weak --strong --force --rows {rows}"
    facts = json.loads(run(f"{command} --output {page} --format json").stdout)
    assert facts["micro_batch_seconds"] == pytest.approx(0.01)
    assert not facts["idle"]
    assert facts["warnings"]
    assert set(facts["curves"]) == {"weak", "strong"}
    assert facts["curves"]["strong"][1]["serial_fraction"] > 0
    (data,) = re.findall(r'id="facts">\n(.*?)\n</script>', page.read_text(), flags=re.DOTALL)
    assert json.loads(data) == facts
    assert "Karp-Flatt" in run(command).stdout
    fits = json.loads(run(f"calibrate {rows} --format json").stdout)["fits"]
    assert [fit["constant_seconds"] for fit in fits] == [pytest.approx(0.004), pytest.approx(0.008)]


def test_no_text_ends_or_opens_an_element_of_the_page() -> None:
    facts = {"program": "<!--<script></script><b>&", "points": []}
    page = document(Path("page.html"), facts["program"], Chart(10, 10), facts).decode()
    (data,) = re.findall(r'id="facts">\n(.*?)\n</script>', page, flags=re.DOTALL)
    assert json.loads(data) == facts
    assert "<" not in data
    assert page.count("<script") == page.count("</script>") == 1
    assert "<!--" not in page
    assert "<b>" not in page


@pytest.mark.parametrize("option", ["--rows", "--output"])
def test_a_file_that_cannot_be_written_is_found_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    from ipu_emu.predict import experiment

    def execute(command: list[str], timeout: float) -> str:
        raise AssertionError(command)

    monkeypatch.setattr(experiment, "launched", execute)
    done = run(f"scale --run train.py --instances 1,2 --batch 1 --force {option} {tmp_path}/absent/x.svg")
    assert done.exit_code == 2
    assert f"x.svg cannot be written: there is no folder {tmp_path}/absent; create it first" in done.stderr


def test_tables_are_printed_before_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ipu_emu.predict import experiment

    folder = tmp_path / "results"
    folder.mkdir()

    def execute(command: list[str], timeout: float) -> str:
        if folder.exists():
            folder.rmdir()
        return f"step_seconds {command[command.index('--accumulation') + 1]}"

    monkeypatch.setattr(experiment, "launched", execute)
    monkeypatch.setattr(experiment, "check_idle", lambda force: not force)
    done = run(f"scale --run train.py --batch 1 --force --rows {folder}/rows.csv")
    assert done.exit_code == 2
    assert "Karp-Flatt" in done.stdout
    assert "cannot be written" in done.stderr
