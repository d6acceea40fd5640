"""ipu-emu: the behaviour that all commands share."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner

from gcl.drawing import terminal_help
from ipu_emu.cli import main
from tests.helpers.mpi_jobs import PROGRAMS
from tests.ipu_emu.helpers.commands import ipu_emu, printed


@pytest.mark.parametrize("command", ["", *main.commands])
def test_help(command: str) -> None:
    said = printed(f"{command} --help")
    assert "ipu-emu" in said
    assert max(map(len, said.splitlines())) <= 118


@pytest.mark.parametrize("command", ["", *main.commands])
def test_help_is_as_wide_as_the_terminal_at_most(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = printed(f"{command} --help", COLUMNS="80").split()
    monkeypatch.setattr(terminal_help, "terminal_width", lambda: 80)
    said = printed(f"{command} --help", COLUMNS="80")
    assert max(map(len, said.splitlines())) <= 80
    assert said.split() == words


@pytest.mark.parametrize("command", ["clock mlp", "memory mlp", "predict mlp"])
def test_ipus_of_a_replica_are_also_asked_for_as_with_the_launcher(command: str) -> None:
    assert printed(f"{command} --ipus-per-replica 2") == printed(f"{command} --ipus 2") != printed(command)


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


@pytest.mark.parametrize(
    ("module", "imported"),
    [("ipu_emu", "ipu_emu.cli"), ("ipu_emu.compat", "ipu_emu.tensorflow")],
    ids=["ipu-emu", "compat"],
)
def test_an_interrupt_while_modules_are_imported_ends_quietly(module: str, imported: str) -> None:
    command = [sys.executable, str(PROGRAMS / "ipu_emu/interrupted_import.py"), module, imported]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main.commands["info"], "invoke", interrupted)
    done = CliRunner().invoke(main, ["info"])
    assert (done.exit_code, done.stderr) == (130, "\nAborted!\n")


def test_the_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(main, ["--version"])
    assert (done.exit_code, done.output) == (0, f"ipu-emu {version('poprun-py')}\n")
