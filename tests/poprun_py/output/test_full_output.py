"""Full or closed stdout: one message or none, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
FULL = "the output cannot be written: No space left on device"


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["bash", "-c", f"{BIN}/{line}"]
    return subprocess.run(words, check=False, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("poprun-py --help", 1),
        ("poprun-py --dry-run true", 1),
        ("poprun-py sh -c 'while echo text; do sleep 0.1; done'", 74),
        ("ipu-emu info", 1),
        ("ipu-emu --help", 1),
        ("ipu-emu calibrate --print-rows", 1),
    ],
)
def test_a_full_stdout_is_one_message(tmp_path: Path, line: str, code: int) -> None:
    done = run(f"{line} > /dev/full", tmp_path)
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(f": {FULL}\n")


@pytest.mark.parametrize("line", ["poprun-py --help", "poprun-py --dry-run true", "ipu-emu info"])
def test_a_closed_stdout_is_no_traceback(tmp_path: Path, line: str) -> None:
    done = run(f"{line} >&-", tmp_path)
    assert done.stderr == ""
    assert done.returncode == 0
