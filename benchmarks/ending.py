"""Ending: a benchmark that is told to end cleans up after itself: what it started ends, temporary folders go."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

__all__ = ["clean_up_when_told", "finished", "terminate"]

_SECONDS = 10.0


def clean_up_when_told() -> None:
    """Make SIGTERM an exception, as Ctrl-C is."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def terminate(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Tell ``process`` to end; it ends those that it started."""
    process.terminate()
    try:
        process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def finished(
    command: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end, or end it when this program ends or it takes too long (seconds)."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            terminate(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)
