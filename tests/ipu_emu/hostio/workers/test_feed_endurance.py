"""Endurance of feeds: many small steps do not increase memory or descriptors."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil
import pytest

from ipu_emu.hostio import Feed

DATA = np.zeros((1000, 16), np.float32)


@pytest.mark.parametrize("how", [{"processes": False}, {"processes": True}, {"prepare": abs}])
def test_memory_is_flat(how: dict[str, Any]) -> None:
    process = psutil.Process()
    with Feed(DATA, micro_batch=4, epochs=None, shuffle=True, workers=1, **how) as feed:

        def used(steps: int) -> tuple[float, int]:
            """Megabytes and descriptors of all processes after more steps."""
            for _ in range(steps):
                next(feed)
            everyone = [process, *process.children()]
            memory = sum(member.memory_full_info().uss for member in everyone)
            return memory / 1e6, sum(member.num_fds() for member in everyone)

        # A leak grows every time; pages that the system has reclaimed return only once.
        usage = [used(1000), *(used(3000) for _ in range(3))]
    memory, descriptors = zip(*usage, strict=True)
    assert min(np.diff(memory)) < 1
    assert len(set(descriptors)) == 1


def test_prefetch_bounds_memory() -> None:
    with Feed(np.zeros((64, 1 << 18), np.float32), micro_batch=2, workers=2, prefetch=4, epochs=None) as feed:
        step = next(feed)
        places = {next(feed).ctypes.data for _ in range(40)}
    assert step.nbytes == 1 << 21
    assert len(places) == 4 + 1
