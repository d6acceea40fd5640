"""Short messages: commands repeat only the start and the end of values of thousands of characters."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

import gcl.explain
from ipu_emu.cli import main
from popdist_py.messages.short_message import short_message
from poprun_py.cli.dispatch import execute

LONG = "9" * 3000


def test_only_long_words_are_cut() -> None:
    path = "/" + "folder/" * 34
    assert short_message(f"{path} is no file\nuse another\n") == f"{path} is no file\nuse another\n"
    assert short_message(f"a {LONG} b") == f"a {'9' * 60}...(2,920 characters)...{'9' * 20} b"
    assert len(short_message("word " * 10_000)) < 4000


@pytest.mark.parametrize(
    "words",
    [
        ["memory", "mlp", "--ipus", LONG],
        ["memory", LONG],
        ["schedule", "--stages", LONG],
        ["predict", "resnet50", "--release", LONG],
        [LONG],
        [f"--{LONG}"],
    ],
)
def test_messages_of_ipu_emu_stay_short(words: list[str]) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "characters)..." in done.output
    assert len(done.output) < 700


def test_messages_of_the_other_commands_stay_short(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    done = CliRunner().invoke(gcl.explain.main, ["--collective", LONG])
    assert "characters)..." in done.output
    assert len(done.output) < 700
    for words in (["--num-instances", LONG, "true"], [LONG], [f"--{LONG}", "true"]):
        assert execute(words)
        said = capfdbinary.readouterr().err
        assert b"characters)..." in said
        assert len(said) < 700


def test_compat_reports_a_name_of_any_length_as_a_missing_file() -> None:
    command = [sys.executable, "-m", "ipu_emu.compat", LONG]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no such file" in done.stderr
    assert len(done.stderr) < 200
