"""Standard output: the launcher's own prints to stdout outside a job."""

from __future__ import annotations

import os
import sys

from poprun_py.errors import PoprunError


def write_stdout(data: bytes) -> None:
    """Write ``data``; raise PoprunError if that fails. Nothing is written to a closed stdout."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        if sys.stdout is sys.__stdout__:
            _discard_the_rest()
        raise PoprunError(f"the output cannot be written: {error.strerror}") from None


def _discard_the_rest() -> None:
    """Make Python's flush at exit succeed."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
