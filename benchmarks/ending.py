"""Ending: a benchmark that is told to end cleans up after itself, as at Ctrl-C."""

from __future__ import annotations

import signal
import sys

__all__ = ["clean_up_when_told"]


def clean_up_when_told() -> None:
    """Make SIGTERM an exception: what was started ends, and temporary folders go."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
