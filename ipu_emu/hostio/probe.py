"""Probe: what ``ipu-emu hostio`` asks a feed to measure, by two variables of the environment.

``IPU_EMU_FEED_REPORTS`` is a folder to which every feed writes a JSON report when it ends; ``IPU_EMU_FEED_STEPS``
ends each feed after so many steps, the same number on every instance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import psutil

import popdist_py
from ipu_emu.errors import FeedError
from ipu_emu.files import replace_file

if TYPE_CHECKING:
    from ipu_emu.hostio.feed import Feed
    from ipu_emu.hostio.pump import Pump

__all__ = ["REPORTS_VARIABLE", "STEPS_VARIABLE", "Measured", "Probe"]

REPORTS_VARIABLE, STEPS_VARIABLE = "IPU_EMU_FEED_REPORTS", "IPU_EMU_FEED_STEPS"

#: Steps before the clock starts: the first wait for compilers, caches and workers.
_WARM_UP = 3


@dataclass(frozen=True)
class Measured:
    """What a feed did on one instance; times are wall seconds, CPU seconds are of the instance and its workers."""

    instance: int
    instances: int
    mode: str
    steps: int
    samples: int
    bytes: int
    seconds: float
    waited_seconds: float
    cpu_seconds: float
    memory_bytes: int
    slot_bytes: int
    workers: int


class Probe:
    """Measures one feed."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._most = folder, steps
        self._process = psutil.Process()
        self._first = -1
        self._begun = self._waited = self._cpu = 0.0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Probe | None:
        """None if nobody asks."""
        if REPORTS_VARIABLE not in environment:
            return None
        return cls(Path(environment[REPORTS_VARIABLE]), int(environment.get(STEPS_VARIABLE, "0")))

    def enough(self, feed: Feed) -> bool:
        """Whether the feed should end; called before every step."""
        if self._first < 0:
            self._first = feed.position
        if feed.position - self._first == _WARM_UP:
            self._begun, self._waited, self._cpu = perf_counter(), feed.waited, self._cpu_seconds()
        return bool(self._most) and feed.position - self._first >= self._most + _WARM_UP

    def write(self, feed: Feed, pump: Pump | None) -> None:
        """Write the report, while the workers are still there."""
        steps = feed.position - self._first - _WARM_UP
        if pump is None or steps < 1:
            return
        measured = Measured(
            instance=popdist_py.getInstanceIndex(),
            instances=popdist_py.getNumInstances(),
            mode=feed.mode.value,
            steps=steps,
            samples=steps * feed.samples,
            bytes=steps * feed.nbytes,
            seconds=perf_counter() - self._begun,
            waited_seconds=feed.waited - self._waited,
            cpu_seconds=self._cpu_seconds() - self._cpu,
            memory_bytes=sum(process.memory_info().rss for process in self._all()),
            slot_bytes=pump.nbytes,
            workers=pump.staff.workers,
        )
        name = self._folder / f"{measured.instance}-{os.getpid()}-{id(feed)}.json"
        trouble = replace_file(str(name), json.dumps(asdict(measured)).encode())
        if trouble:
            raise FeedError(f"The report of a feed could not be written to {name}: {trouble}")

    def _all(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_seconds(self) -> float:
        times = [process.cpu_times() for process in self._all()]
        return float(sum(time.user + time.system for time in times))
