"""Probe: what ``ipu-emu hostio`` asks for by two variables of the environment.

``IPU_EMU_FEED_REPORTS`` is a folder to which every feed writes a JSON report when it ends, or every session in a
process without feeds; ``IPU_EMU_FEED_STEPS`` ends each after so many steps, the same number on every instance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

import psutil

import popdist_py
from ipu_emu.atomic_write import replace_file
from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.data_modes import DataMode

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


class Source(Protocol):
    """What gives steps: how many so far, and seconds that were waited for them; samples and bytes of each."""

    mode: DataMode
    position: int
    samples: int

    @property
    def nbytes(self) -> int: ...

    @property
    def waited(self) -> float: ...

    @property
    def workers(self) -> int: ...

    @property
    def slot_nbytes(self) -> int:
        """Bytes that are kept for steps that were prepared ahead."""


class Probe:
    """Measures one source."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._most = folder, steps
        self._claimed = folder / f"{os.getpid()}.feed"
        self._process = psutil.Process()
        self._first = -1
        self._written = False
        self._begun = self._waited = self._cpu = 0.0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Probe | None:
        """None if nobody asks."""
        if REPORTS_VARIABLE not in environment:
            return None
        return cls(Path(environment[REPORTS_VARIABLE]), int(environment.get(STEPS_VARIABLE, "0")))

    def claim(self) -> None:
        """Say that a feed measures in this process, so that sessions need not."""
        self._claimed.touch()

    @property
    def is_claimed(self) -> bool:
        return self._claimed.exists()

    def enough(self, source: Source) -> bool:
        """Whether the source should end; called before every step."""
        if self._first < 0:
            self._first = source.position
        if source.position - self._first == _WARM_UP:
            self._begun, self._waited, self._cpu = perf_counter(), source.waited, self._cpu_seconds()
        return bool(self._most) and source.position - self._first >= self._most + _WARM_UP

    def write(self, source: Source) -> None:
        """Write the report, once, while the workers are still there."""
        steps = source.position - self._first - _WARM_UP
        if self._written or self._first < 0 or steps < 1:
            return
        self._written = True
        measured = Measured(
            instance=popdist_py.getInstanceIndex(),
            instances=popdist_py.getNumInstances(),
            mode=source.mode.value,
            steps=steps,
            samples=steps * source.samples,
            bytes=steps * source.nbytes,
            seconds=perf_counter() - self._begun,
            waited_seconds=source.waited - self._waited,
            cpu_seconds=self._cpu_seconds() - self._cpu,
            memory_bytes=sum(process.memory_info().rss for process in self._all()),
            slot_bytes=source.slot_nbytes,
            workers=source.workers,
        )
        name = self._folder / f"{measured.instance}-{os.getpid()}-{id(source)}.json"
        trouble = replace_file(str(name), json.dumps(asdict(measured)).encode())
        if trouble:
            raise FeedError(f"The report of a feed could not be written to {name}: {trouble}")

    def _all(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_seconds(self) -> float:
        times = [process.cpu_times() for process in self._all()]
        return float(sum(time.user + time.system for time in times))
