"""The report in terminals: columns stay whole in 80 characters, and NO_COLOR is respected."""

from __future__ import annotations

import io
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ipu_emu.cli.output.run_report.report_page import report_html
from ipu_emu.cli.output.run_report.report_text import report_text
from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.report_data import report_data
from popdist_py.trace import Category, Kind, Recorder
from popdist_py.trace.records import RECORD_WORDS, key_of
from tests.ipu_emu.helpers.commands import ipu_emu, printed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of one process with one step and an op with a long output."""
    recorder = Recorder(str(tmp_path / "run"), limit=64 << 20, about={"pid": 100, "host": "h"})
    about = {"instruction": "Compute", "output": "Gradient___a_very_long_name_of_a_tensor_of_some_model/7"}
    step, op = recorder.name("step", Category.COMPUTE), recorder.name("MatMul", Category.COMPUTE, **about)
    recorder.record(key_of(Kind.SPAN, step), 1_000_000, 2_000_000)
    recorder.record(key_of(Kind.SPAN, op), 1_200_000, 1_700_000)
    recorder.close()
    return tmp_path / "run"


def on_a_terminal(*arguments: str | Path, **environment: str) -> str:
    """The output of Python with these arguments on a terminal of 80 columns."""
    primary, secondary = pty.openpty()
    command = [sys.executable, *arguments]
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", **environment}
    process = subprocess.Popen(command, stdout=secondary, env=env)
    os.close(secondary)
    text = b""
    while True:
        try:
            text += os.read(primary, 1 << 16)
        except OSError:  # the other side is closed
            break
    os.close(primary)
    assert process.wait(60) == 0
    return text.decode()


def test_tables_keep_their_columns_in_80_characters(folder: Path) -> None:
    lines = [line.rstrip() for line in on_a_terminal("-m", "ipu_emu", "report", folder, TERM="dumb").splitlines()]
    assert max(map(len, lines)) <= 80
    (row,) = [line for line in lines if "MatMul" in line]
    assert [cell.strip() for cell in row.split("│")[1:-1]][2:6] == ["1", "500.0", "100.0%", "compute"]


def test_text_is_what_the_option_and_the_default_print(folder: Path) -> None:
    said = printed(f"report {folder}")
    assert "While steps run" in said
    assert printed(f"report --text {folder}") == said == printed(f"report --format text {folder}")
    refused = ipu_emu(f"report --text --format json {folder}")
    assert refused.exit_code
    assert "--text and --format json were given; leave out one of them" in refused.output


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False)])
def test_no_color_is_obeyed_on_terminals(value: str, *, coloured: bool) -> None:
    program = "from ipu_emu.cli.output.printing import console; console().print('x', style='red')"
    assert ("\x1b[31m" in on_a_terminal("-c", program, NO_COLOR=value)) is coloured


def test_a_folder_whose_name_is_no_text_gets_a_page(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"run\xff")
    recorder = Recorder(str(folder), limit=1 << 20, about={"pid": 1, "host": "h", "boot": "b"})
    recorder.instant(recorder.name("x"))
    recorder.close()
    analysis = analyse(read_run(folder))
    assert b"run?: traced run" in report_html(analysis, report_data(analysis))


def test_outputs_are_no_more_open_than_the_traces(folder: Path, tmp_path: Path) -> None:
    trace = next(folder.glob("*.trace"))
    page, timeline = tmp_path / "page.html", tmp_path / "timeline.json"
    for mode, expected in ((0o600, 0o600), (0o644, 0o644)):
        trace.chmod(mode)
        printed(f"report {folder} --html {page} --perfetto {timeline}")
        assert [stat.S_IMODE(path.stat().st_mode) for path in (page, timeline)] == [expected, expected]
    folder.chmod(0o700)
    printed(f"report {folder} --html {page}")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_two_outputs_of_one_name_are_refused(folder: Path, tmp_path: Path) -> None:
    page, link = tmp_path / "page.html", tmp_path / "link"
    link.symlink_to(page)
    done = ipu_emu(f"report {folder} --html {page} --perfetto {link}")
    assert done.exit_code == 2
    assert f"--html and --perfetto both write {link}" in done.output
    assert not page.exists()
    printed(f"report {folder} --html /dev/null --perfetto /dev/null")


def test_an_output_in_a_folder_that_is_gone_gets_one_message(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = ipu_emu(f"report {folder} --html page.html --perfetto x")
    assert done.exit_code == 2
    assert "--html page.html cannot be written: No such file or directory" in done.output


def recorded(folder: Path, begin: int, end: int, **about: object) -> None:
    recorder = Recorder(str(folder), limit=1 << 20, about={"host": "h", "boot": "b", **about})
    recorder.record(key_of(Kind.SPAN, recorder.name("step", Category.COMPUTE)), begin, end)
    recorder.close()


@pytest.mark.parametrize(
    ("others", "programs"),
    [
        ([(40, {"pid": 2})], 2),  # later
        ([(5, {"pid": 2})], 1),  # beside it, as mpirun starts them
        ([(5, {"pid": 2, "arguments": ["other"]})], 2),
        ([(2, {"pid": 2, "arguments": ["other"]})], 1),  # in its time: something that it started
        ([(40, {"pid": 2, "parent": 1})], 1),
        ([(5, {"pid": 2, "environment": {"POPDIST_JOB": job}}) for job in "ab"], 3),
        ([(at, {"pid": at, "environment": {"POPDIST_JOB": "a"}}) for at in (2, 60)], 2),  # a job that was restarted
    ],
)
def test_several_programs_in_one_folder_are_noted(
    tmp_path: Path, others: list[tuple[int, dict[str, object]]], programs: int
) -> None:
    recorded(tmp_path, 1_000, 20_000, pid=1)
    for begin, about in others:
        recorded(tmp_path, begin * 1_000, (begin + 17) * 1_000, **about)
    said = " ".join(printed(f"report {tmp_path}").split())
    assert (f"the traces of {programs} programs or jobs" in said) is (programs > 1), said
    assert ("Note: " in printed(f"report {tmp_path} {tmp_path}")) is (programs > 1)


def test_instructions_that_are_timed_together_are_marked_and_the_table_says_what_that_means(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), limit=64 << 20, about={"host": "h"})
    names = [recorder.name(op, Category.COMPUTE, instruction="Compute", output=op) for op in ("Add", "Mul", "Conv")]
    for damaged in ({"spans": [[]], "groups": [3]}, {"spans": [[], 1], "groups": [[1, 1]]}):
        recorder.name("sequence", Category.USER, **damaged)
    recorder.record(key_of(Kind.SPAN, recorder.name("step", Category.COMPUTE)), 1000, 9000)
    words, places = recorder.sequence(names, groups=[[3, 1], [1]]).rounds()
    start = next(places)
    words[start], words[start + RECORD_WORDS], words[start + RECORD_WORDS + 1] = 1000, 5000, 9000
    recorder.close()
    data = report_data(analyse(read_run(tmp_path)))
    assert {row["name"]: (row["timed_together"], row["seconds"]) for row in data["ops"]} == {
        "Add": (True, 3e-6),
        "Mul": (True, 1e-6),
        "Conv": (False, 4e-6),
    }
    console = Console(width=80, record=True, markup=False, file=io.StringIO())
    console.print(report_text(data))
    said = " ".join(console.export_text().split())
    assert "are timed together, and share that time as they did at first" in said


def test_tables_show_their_units_and_names_with_brackets(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), limit=64 << 20, about={"host": "h"})
    op = recorder.name("Add[red]", Category.COMPUTE, instruction="Compute", output="x[b]")
    recorder.record(key_of(Kind.SPAN, recorder.name("step", Category.COMPUTE)), 1_000_000, 9_000_000)
    recorder.record(key_of(Kind.SPAN, op), 2_000_000, 5_000_000)
    recorder.close()
    said = " ".join(printed(f"report {tmp_path}").split())
    for part in ("wall time from start to end [us]", "time [us]", "Add[red]", "x[b]"):
        assert part in said, part
