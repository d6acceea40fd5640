"""Cli: the ``poprun-py`` command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (that of this process, if none is given); return the exit code."""
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is started yet: Ctrl-C just ends us
    from poprun_py.cli.dispatch import execute  # after the line above, for it takes a while

    return execute(sys.argv[1:] if argv is None else argv)
