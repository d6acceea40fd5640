"""Commands: runs the command ipu-emu in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from ipu_emu.cli import main


def ipu_emu(words: str, **environ: str) -> Result:
    return CliRunner().invoke(main, words.split(), env=environ, catch_exceptions=False)


def printed(words: str, **environ: str) -> str:
    done = ipu_emu(words, **environ)
    assert done.exit_code == 0, done.output
    return done.stdout
