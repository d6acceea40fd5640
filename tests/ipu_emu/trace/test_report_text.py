"""The report in terminals: columns stay whole in 80 characters, and NO_COLOR is obeyed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ipu_emu.cli.output.run_report.report_page import report_html
from ipu_emu.trace import read_run
from ipu_emu.trace.findings import analyse
from ipu_emu.trace.report_data import report_data
from popdist_py.trace import Category, Kind, Recorder
from popdist_py.trace.records import key_of


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
    """What Python prints with these arguments on a terminal of 80 columns."""
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


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False)])
def test_no_color_is_obeyed_on_terminals(value: str, *, coloured: bool) -> None:
    program = "from ipu_emu.cli.output.printing import console; console().print('[red]x[/red]')"
    assert ("\x1b[31m" in on_a_terminal("-c", program, NO_COLOR=value)) is coloured


def test_a_folder_whose_name_is_no_text_gets_a_page(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"run\xff")
    recorder = Recorder(str(folder), limit=1 << 20, about={"pid": 1, "host": "h", "boot": "b"})
    recorder.instant(recorder.name("x"))
    recorder.close()
    found = analyse(read_run(folder))
    assert b"run?: traced run" in report_html(found, report_data(found))
