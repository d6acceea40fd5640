"""Polling: waits for what MPI completes, at first between yields of the core, then between short sleeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic, sleep

_YIELDS, _NAP_SECONDS = 500, 50e-6


def poll(done: Callable[[], bool], seconds: float) -> bool:
    """Poll ``done`` until it is true, at most ``seconds``; return whether it is."""
    end, polls = monotonic() + seconds, 0
    while not done():
        polls += 1
        if polls < _YIELDS:
            os.sched_yield()
        else:
            sleep(_NAP_SECONDS)
        if monotonic() >= end:
            return done()
    return True
