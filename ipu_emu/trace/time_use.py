"""TimeUse: the time of an instance by category, over its life and during its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ipu_emu.trace.run import Process, Run
from ipu_emu.trace.self_time import self_times
from popdist_py.trace.records import CATEGORIES

#: Time in no span: the program's own work.
OTHER = "the program itself"
#: Time before the first span, if the launcher says when the program was started.
IMPORTS = "start of Python and imports"


@dataclass(frozen=True)
class TimeUse:
    """Seconds of one instance: ``categories`` from start to end, ``stepping`` from its first to its last step.

    Both are times of the thread that runs the program, so each adds up to its wall time; work of other threads shows
    as the span that waits for them. ``steps`` counts the steps.
    """

    process: Process
    start: float
    end: float
    categories: Mapping[str, float]
    stepping: Mapping[str, float]
    steps: int

    @property
    def seconds(self) -> float:
        """Wall time from the start of the instance to its end."""
        return self.end - self.start

    @cached_property
    def stepping_seconds(self) -> float:
        """Wall time from the first step to the last."""
        return sum(self.stepping.values())

    def share(self, *categories: str) -> float:
        """The fraction of a category in the time from the first step to the last."""
        return sum(self.stepping.get(category, 0.0) for category in categories) / (self.stepping_seconds or 1.0)


def time_uses(run: Run) -> Sequence[TimeUse]:
    """The time of each instance by category."""
    lives = _lives(run)
    return [_time_use(process, lives.get(process.instance)) for process in run.instances]


def _lives(run: Run) -> Mapping[int | None, tuple[int, int]]:
    """Begin and end of the program of each instance, as recorded by the launcher, for the last start of the job."""
    lives = {}
    for process in run.processes:
        for span in process.spans if process.trace.process.get("role") == "launcher" else ():
            name = process.trace.names[int(span["name"])]
            if name.name == "program":
                lives[name.args.get("rank")] = int(span["begin"]), int(span["end"])
    return lives


def _time_use(process: Process, life: tuple[int, int] | None) -> TimeUse:
    spans = process.spans[process.spans["thread"] == process.main_thread]
    own = self_times(spans)
    begins, ends = spans["begin"], spans["end"]
    first = min(life[0] if life else np.iinfo(np.int64).max, int(begins.min(initial=np.iinfo(np.int64).max)))
    last = max(life[1] if life else 0, int(ends.max(initial=0)))
    if first > last:
        return TimeUse(process, 0.0, 0.0, {}, {}, 0)
    start, stop = process.window
    inside = (begins >= start) & (ends <= stop)
    categories = dict(_by_category(process, spans["name"], own, last - first))
    if life and len(spans):
        categories[IMPORTS] = (int(begins.min()) - first) / 1e9
        categories[OTHER] = max(categories.get(OTHER, 0.0) - categories[IMPORTS], 0.0)
    return TimeUse(
        process,
        first / 1e9,
        last / 1e9,
        categories,
        _by_category(process, spans["name"][inside], own[inside], stop - start),
        int((process.steps["thread"] == process.main_thread).sum()),
    )


def _by_category(process: Process, names: np.ndarray, own: np.ndarray, wall: int) -> Mapping[str, float]:
    """Seconds by category, and the rest of the wall time; categories without time are left out."""
    totals = dict.fromkeys(CATEGORIES, 0.0)
    numbers, places = np.unique(names, return_inverse=True)
    sums = np.bincount(places, own, len(numbers))
    for number, total in zip(numbers, sums, strict=True):
        category = process.trace.names[int(number)].category
        totals[category] = totals.get(category, 0.0) + total / 1e9
    left = wall / 1e9 - sum(totals.values())
    return {name: float(seconds) for name, seconds in (totals | {OTHER: max(left, 0.0)}).items() if seconds > 0}
