"""Stragglers: how late instances come to collectives, and how much longer they work than others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ipu_emu.trace.collective_calls import CollectiveCalls
from ipu_emu.trace.time_use import TimeUse
from popdist_py.trace.records import Category


@dataclass(frozen=True)
class Punctuality:
    """One instance while steps run: collectives, how often it came last, and seconds.

    ``late_seconds``: by how much it came after the one before it; ``waiting_seconds``: how long it waited for others;
    ``working_seconds``: its time outside collectives; ``working_over_median_of_others``: that time, relative.
    """

    label: str
    host: str
    collectives: int
    times_last: int
    late_seconds: float
    waiting_seconds: float
    working_seconds: float
    working_over_median_of_others: float


def punctuality(uses: Sequence[TimeUse], collectives: Sequence[CollectiveCalls]) -> Sequence[Punctuality]:
    """The punctuality of each instance; [] for a single one."""
    if len(uses) < 2:
        return []
    calls, last = (np.zeros(len(uses), np.int64) for _ in range(2))
    late, waited = (np.zeros(len(uses)) for _ in range(2))
    for collective in collectives:
        on, inside = list(collective.instances), inside_steps(collective, uses)
        calls[on] += int(inside.sum())
        last[on] += np.bincount(collective.last[inside], minlength=len(on))
        late[on] += lateness(collective, inside) / 1e9
        waited[on] += collective.waits[inside].sum(0) / 1e9
    return [
        Punctuality(
            use.process.label,
            use.process.host,
            int(calls[index]),
            int(last[index]),
            float(late[index]),
            float(waited[index]),
            _working(use),
            slowness(uses, index),
        )
        for index, use in enumerate(uses)
    ]


def inside_steps(calls: CollectiveCalls, uses: Sequence[TimeUse]) -> NDArray[np.bool_]:
    """A mask of the calls between the first and the last step."""
    spans = [use.process.window for use in (uses[index] for index in calls.instances)]
    inside = [(begin <= calls.begins[:, k]) & (calls.ends[:, k] <= end) for k, (begin, end) in enumerate(spans)]
    return np.asarray(np.all(inside, 0))


def lateness(calls: CollectiveCalls, inside: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Nanoseconds by which each instance, where it was the last, came later than the one before it."""
    begins = np.sort(calls.begins[inside], 1)
    late = begins[:, -1] - begins[:, -2] if begins.shape[1] > 1 else np.zeros(len(begins))
    return np.asarray(np.bincount(calls.last[inside], late, len(calls.instances)), np.float64)


def slowness(uses: Sequence[TimeUse], place: int) -> float:
    """How many times as long as the others an instance works outside collectives."""
    others = [_working(use) for index, use in enumerate(uses) if index != place]
    return _working(uses[place]) / (median(others) or 1e-9)


def _working(use: TimeUse) -> float:
    return use.stepping_seconds - use.stepping.get(Category.COLLECTIVES.value, 0.0)
