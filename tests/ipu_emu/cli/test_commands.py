"""ipu-emu: what all commands have in common."""

from __future__ import annotations

import subprocess
import sys

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


def test_an_interrupt_while_modules_are_imported_ends_quietly() -> None:
    program = (
        "import sys\nfrom ipu_emu.__main__ import run\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'ipu_emu.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.exit(run())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_before_the_program_runs_ends_compat_quietly() -> None:
    program = (
        "import runpy, sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'ipu_emu.tensorflow':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "runpy.run_module('ipu_emu.compat', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main.commands["info"], "invoke", interrupted)
    done = CliRunner().invoke(main, ["info"])
    assert (done.exit_code, done.stderr) == (130, "\nAborted!\n")
