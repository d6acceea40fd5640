"""ipu-emu: what all commands have in common."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ipu_emu.cli import main
from tests.ipu_emu.helpers.commands import ipu_emu, printed


@pytest.mark.parametrize("command", ["", *main.commands])
def test_help(command: str) -> None:
    said = printed(f"{command} --help")
    assert "ipu-emu" in said
    assert max(map(len, said.splitlines())) <= 118


@pytest.mark.parametrize("command", ["clock", "compile", "hostio", "memory", "schedule"])
def test_missing_arguments(command: str) -> None:
    done = ipu_emu(command)
    assert done.exit_code == 2
    assert "Error: Missing" in done.stderr


@pytest.mark.parametrize("command", list(main.commands))
def test_a_nul_character_in_a_word(command: str) -> None:
    done = CliRunner().invoke(main, [command, "\0"])
    assert done.exit_code == 2
    assert "a NUL character" in done.stderr
