"""Kept errors: if a library aborts a worker, its message is in the output of the tests."""

import subprocess
import sys
from pathlib import Path

_TESTS = """
import os

def test_before():
    os.write(2, b"of another test")

def test_that_aborts():
    os.write(2, b"Check failed: the reason")
    os.abort()
"""


def test_the_output_of_a_dead_worker_is_printed(tmp_path: Path) -> None:
    (tmp_path / "test_abort.py").write_text(_TESTS)
    options = ["-q", "-n", "1", "--max-worker-restart", "0", "-p", "tests.helpers.kept_errors", "--rootdir"]
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path), str(tmp_path / "test_abort.py")]
    done = subprocess.run(command, check=False, cwd=root, capture_output=True, text=True, timeout=120)
    assert "stderr of gw0, which died:\nCheck failed: the reason" in done.stdout
    assert "of another test" not in done.stdout
    assert done.returncode == 1
