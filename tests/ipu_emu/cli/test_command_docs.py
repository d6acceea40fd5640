"""Pages that show commands of ipu-emu: the commands print what the pages show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from ipu_emu.cli import main
from tests.helpers.mpi_jobs import ROOT

NAMES = ("docs/guides/ipu-emu.md", "docs/guides/prediction.md", "docs/tutorial.md", "README.md")
PAGES = "".join((ROOT / page).read_text() for page in NAMES)
SHOWN = re.findall(r"```\n\$ (?:.venv/bin/)?ipu-emu ((?!hostio)[^\n]*)\n(.*?)```", PAGES, flags=re.DOTALL)
#: The parts of an output that depend on the compiler: numbers with units, bars, curves, and the width of columns.
VARYING = re.compile(r"[\d.,]+( [KMG]?i?B)?|[▁▂▃▄▅▆▇█· -]+|(?<=[A-Z])[A-Z]+")


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def words(line: str) -> str:
    return VARYING.sub(" ", line)


@pytest.mark.parametrize(("command", "expected"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_commands_print_what_the_page_shows(command: str, expected: str) -> None:
    """Exactly, except skipped lines (``...``); where numbers depend on the compiler, only the title and the words."""
    done = CliRunner().invoke(main, command.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    said, wanted = lines(done.stdout), lines(expected)
    if command.startswith(("memory", "clock")):
        assert wanted[0] in ("...", said[0])
        said, wanted = ([line if line == "..." else words(line) for line in text] for text in (said, wanted))
    at = 0
    for line, before in zip(wanted, ["", *wanted], strict=False):
        if line != "...":
            at = said.index(line, at) if before == "..." else at
            assert said[at] == line
            at += 1
    assert wanted[-1] == "..." or at == len(said)


def test_the_timeline_is_what_its_command_draws(tmp_path: Path) -> None:
    (command,) = re.findall(r"`ipu-emu (clock [^`\n]*)`:\n\n!\[[^]]*\]\(../images/timeline.svg\)", PAGES)
    drawn = tmp_path / "timeline.svg"
    done = CliRunner().invoke(main, [*command.split(), "--output", str(drawn)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    shown = ROOT / "docs/images/timeline.svg"
    labels, wanted = (re.findall(r"<text[^>]*>([^<]*)", path.read_text()) for path in (shown, drawn))
    assert labels == wanted
