"""Pages about options: they match the tables, and their commands work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from poprun_py.cli import main
from poprun_py.cli.help import GROUPS
from poprun_py.options.foreign_options import FOREIGN
from poprun_py.options.option_table import OPTIONS

ROOT = Path(__file__).parents[3]
HABITS = ROOT / "docs/guides/from-mpirun-and-torchrun.md"


def rows(page: Path) -> list[list[str]]:
    """The cells of every row of its tables."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_pages_are_up_to_date():
    script = ROOT / "scripts/document_options.py"
    done = subprocess.run(
        [sys.executable, script, "--check"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_option_is_on_the_page():
    spelled = " ".join(row[0] for row in rows(ROOT / "docs/reference/options.md"))
    assert all(f"--{name}" in spelled for option in OPTIONS for name in option.spellings)
    assert list(GROUPS) == list(dict.fromkeys(option.group for option in OPTIONS))


OURS = sorted(
    {cell.strip("`") for row in rows(HABITS) if row[0] in ("mpirun", "torchrun") for cell in row[2:3]} - {"-"}
)


@pytest.mark.parametrize("ours", OURS)
def test_the_suggested_options_work(ours, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("h0\nh1\n")
    instances = [] if "--num-instances" in ours else ["--num-instances=2"]
    assert main(["--dry-run", *instances, *shlex.split(ours), "true"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("spelling", dict.fromkeys(spelling for row in FOREIGN for spelling in row.spellings))
def test_an_option_of_another_launcher_is_recognised(spelling, capsys):
    """Either it is also an option of ours, or the message says what to write instead."""
    code = main(["--dry-run", f"{spelling}=1" if spelling.startswith("--") else spelling, "true"])
    said = capsys.readouterr().err
    if spelling in {f"--{option.name}" for option in OPTIONS}:
        assert code == 0
    else:
        assert code == 2
        assert said.startswith(f"poprun-py: {spelling} is an option of ")


def test_the_example_of_a_foreign_option_is_what_is_printed(capsys):
    command, said = re.findall(r"^\$ (.*)\n(poprun-py: .*)$", HABITS.read_text(), re.MULTILINE)[0]
    assert main(shlex.split(command)[1:]) == 2
    assert capsys.readouterr().err == f"{said}\n"
