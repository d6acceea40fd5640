"""Probe: measurements of feeds and sessions, which ``ipu-emu hostio`` requests by two environment variables.

``IPU_EMU_FEED_REPORTS`` is a folder to which each feed writes a JSON report when it ends; in a process without feeds,
each session writes one. ``IPU_EMU_FEED_STEPS`` is the number of steps after which each of them ends, the same on
every instance.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from time import perf_counter
from typing import Protocol

import psutil

import popdist_py
from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.data_modes import DataMode
from popdist_py.files.atomic_write import replace_file

REPORTS_VARIABLE, STEPS_VARIABLE = "IPU_EMU_FEED_REPORTS", "IPU_EMU_FEED_STEPS"

#: Steps before timing starts: the first ones wait for compilers, caches and workers.
_WARM_UP_STEPS = 3


@dataclass(frozen=True)
class FeedMeasurement:
    """The measurement of a feed on one instance; wall seconds; CPU seconds are of the instance and its workers."""

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


_KINDS: dict[str, type] = {"int": int, "float": float, "str": str}
_MOST = 1 << 62


def measurement_in(report: bytes) -> FeedMeasurement:
    """Return the feed in the content of a report; raise ValueError if there is none in it."""
    try:
        content = json.loads(report)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    kinds = {field.name: _KINDS[str(field.type)] for field in fields(FeedMeasurement)}
    if not isinstance(content, dict) or set(content) != set(kinds):
        raise ValueError(f"it must be an object with {', '.join(kinds)}")
    for name, value in content.items():
        if type(value) is not kinds[name] or (isinstance(value, int | float) and not 0 <= value < _MOST):
            raise ValueError(f"{name} is {str(value)[:40]!r}")
    feed = FeedMeasurement(**content)
    if not (feed.instance < feed.instances and feed.steps and feed.samples and feed.seconds):
        raise ValueError("it is of no instance, or of no step")
    DataMode(feed.mode)
    return feed


class MeasuredSource(Protocol):
    """Protocol of a measured source: ``position`` counts steps; each has ``samples`` and ``nbytes``."""

    mode: DataMode
    position: int
    samples: int

    @property
    def nbytes(self) -> int: ...

    @property
    def waited(self) -> float:
        """Seconds waited for steps so far."""

    @property
    def workers(self) -> int: ...

    @property
    def slot_nbytes(self) -> int:
        """Bytes of the memory for steps prepared ahead."""


class Probe:
    """Measures one source of steps."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._max_steps = folder, steps
        self._claim_file = folder / f"{os.getpid()}.feed"
        self._process = psutil.Process()
        self._first = -1
        self._written = False
        self._start = self._waited = self._cpu = 0.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Probe | None:
        """Return a probe if the environment requests one, else None."""
        if REPORTS_VARIABLE not in environment:
            return None
        return cls(Path(environment[REPORTS_VARIABLE]), int(environment.get(STEPS_VARIABLE, "0")))

    def claim(self) -> None:
        """Record that a feed measures in this process, so that sessions do not."""
        self._claim_file.touch()

    @property
    def is_claimed(self) -> bool:
        """Whether a feed measures in this process."""
        return self._claim_file.exists()

    def is_complete(self, source: MeasuredSource) -> bool:
        """Whether enough steps are timed; must be called before every step."""
        if self._first < 0:
            self._first = source.position
        if source.position - self._first == _WARM_UP_STEPS:
            self._start, self._waited, self._cpu = perf_counter(), source.waited, self._cpu_seconds()
        return bool(self._max_steps) and source.position - self._first >= self._max_steps + _WARM_UP_STEPS

    def write(self, source: MeasuredSource) -> None:
        """Write the report, once; must be called while the workers exist."""
        steps = source.position - self._first - _WARM_UP_STEPS
        if self._written or self._first < 0 or steps < 1:
            return
        self._written = True
        measured = FeedMeasurement(
            instance=popdist_py.getInstanceIndex(),
            instances=popdist_py.getNumInstances(),
            mode=source.mode.value,
            steps=steps,
            samples=steps * source.samples,
            bytes=steps * source.nbytes,
            seconds=perf_counter() - self._start,
            waited_seconds=source.waited - self._waited,
            cpu_seconds=self._cpu_seconds() - self._cpu,
            memory_bytes=sum(process.memory_info().rss for process in self._processes()),
            slot_bytes=source.slot_nbytes,
            workers=source.workers,
        )
        name = self._folder / f"{measured.instance}-{os.getpid()}-{id(source)}.json"
        try:
            replace_file(name, json.dumps(asdict(measured)).encode())
        except OSError as error:
            raise FeedError(f"The report of a feed cannot be written to {name}: {error.strerror}") from error

    def _processes(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def _cpu_seconds(self) -> float:
        times = [process.cpu_times() for process in self._processes()]
        return float(sum(time.user + time.system for time in times))


class StepProbe:
    """Measures the steps of one session whose program passes the step data itself.

        real                       run | the program prepares | run | the program prepares | ...
        generated and synthetic    run run run ...              within the first call, without the program

    After enough timed steps it writes its report and ends the program. A step has ``samples`` and ``nbytes``.
    """

    workers = 0
    slot_nbytes = 0

    def __init__(self, probe: Probe, mode: DataMode, samples: int, nbytes: int) -> None:
        self.mode, self.samples, self.nbytes = mode, samples, nbytes
        self.position = 0
        self.waited = 0.0  # seconds between runs, and seconds that runs wait for callbacks
        self._probe, self._last_end = probe, 0.0
        atexit.register(self.close)

    @classmethod
    def from_environment(cls, mode: DataMode, samples: int, nbytes: int) -> StepProbe | None:
        """Return a probe if the environment requests one and no feed measures in this process, else None."""
        probe = Probe.from_environment(os.environ)
        return None if probe is None or probe.is_claimed else cls(probe, mode, samples, nbytes)

    def run(self, step: Callable[[], float]) -> None:
        """Run ``step``, which returns the seconds it waited for data; raise SystemExit after the last step."""
        self.waited += perf_counter() - self._last_end if self._last_end else 0.0
        again = True
        while again:
            if self._probe.is_complete(self):
                self.close()
                raise SystemExit(0)
            self.waited += step()
            self.position += 1
            again = self.mode is not DataMode.REAL
        self._last_end = perf_counter()

    def close(self) -> None:
        """Write the report, once."""
        self._probe.write(self)
