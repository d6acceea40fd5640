"""Command line: the ``poprun-py`` command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: that of this process); return the exit code."""
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing has been started yet: Ctrl-C ends this process
    from poprun_py.cli.dispatch import execute  # after the line above: the import is slow

    return execute(sys.argv[1:] if argv is None else argv)
