"""docs/guides/ipu-emu.md and README.md: commands print what they show."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from ipu_emu.cli import main
from tests.helpers.mpi_jobs import ROOT

PAGES = (ROOT / "docs/guides/ipu-emu.md").read_text() + (ROOT / "README.md").read_text()
SHOWN = re.findall(r"```\n\$ (?:.venv/bin/)?ipu-emu ([^\n]*)\n(.*?)```", PAGES, flags=re.DOTALL)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize(("command", "expected"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_commands_print_what_the_page_shows(command: str, expected: str) -> None:
    """To the letter; where the compiler decides about the numbers, the title."""
    done = CliRunner().invoke(main, command.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    said, wanted = lines(done.stdout), lines(expected)
    if command.startswith(("memory", "clock")):
        assert said[0] == wanted[0]
    elif wanted[-1] == "...":
        assert said[: len(wanted) - 1] == wanted[:-1]
    else:
        assert said == wanted
