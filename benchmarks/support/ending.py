"""Ending: on SIGTERM or Ctrl-C a benchmark ends the processes that it started and removes temporary folders."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

__all__ = ["clean_up_when_told", "finished", "terminate"]

_SECONDS = 10.0


def clean_up_when_told() -> None:
    """Turn SIGTERM into an exception, like Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def terminate(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Send SIGTERM to ``process``, which then ends those that it started."""
    process.terminate()
    try:
        process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def finished(
    command: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``command``; end it when this program ends, or after ``timeout`` seconds."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            terminate(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)
