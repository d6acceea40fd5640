"""Run: the traces of all processes of a job on one time axis."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import ArgumentError
from ipu_emu.trace.process_trace import ProcessTrace, read_process
from popdist_py.environment import NAMES, RESTART_COUNT
from popdist_py.trace.records import SUFFIX, Kind

#: The span of a step, in which a session runs.
STEP = "step"


@dataclass(frozen=True)
class Process:
    """One process of a run; ``records`` are in nanoseconds since the run began, and all spans have an end.

    ``offset`` was added to the first times of its host's clock, with at most this ``error``: nanoseconds.
    ``open`` are the spans that were open when its trace ended: (name, begin), the innermost last.
    ``started``: by another process of the run.
    ``start`` counts the starts of the job before: restarts of one run are in one folder.
    """

    trace: ProcessTrace
    label: str
    host: str
    instance: int | None
    started: bool
    start: int
    offset: int
    error: int
    records: NDArray[Any]
    open: Sequence[tuple[str, int]]

    @cached_property
    def main_thread(self) -> int:
        """The thread that runs the program: the first of the process."""
        pid = int(self.trace.process.get("pid", 0))
        if pid in self.trace.threads or not len(self.records):
            return pid
        threads, counts = np.unique(self.records["thread"], return_counts=True)
        return int(threads[np.argmax(counts)])

    @cached_property
    def window(self) -> tuple[int, int]:
        """When the first step began and the last one ended; (0, 0) without steps."""
        steps = self.steps
        return (int(steps["begin"].min()), int(steps["end"].max())) if len(steps) else (0, 0)

    @cached_property
    def steps(self) -> NDArray[Any]:
        """The spans of steps."""
        numbers = [number for number, name in self.trace.names.items() if name.name == STEP]
        steps: NDArray[Any] = self.spans[np.isin(self.spans["name"], np.array(numbers, np.uint32))]
        return steps

    @cached_property
    def spans(self) -> NDArray[Any]:
        """The spans among the records."""
        spans: NDArray[Any] = self.records[self.records["kind"] == Kind.SPAN]
        return spans


@dataclass(frozen=True)
class Run:
    """All processes of a run: the launcher first, then instances in order, then others."""

    folder: str
    processes: Sequence[Process]

    @property
    def mode(self) -> int:
        """The permissions of files derived from these traces: at most those of the traces."""
        folder = Path(self.folder)
        reads = [stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.glob(f"*{SUFFIX}"))]
        return 0o600 | reduce(and_, reads, 0o666)

    @property
    def profiles(self) -> Mapping[str, str]:
        """The files of profiles beside executables, and their checksums when they were written."""
        named = (profile for process in self.processes for profile in process.trace.facts.get("profiles", ()))
        return {profile["path"]: profile["sha256"] for profile in named}

    @cached_property
    def seconds(self) -> float:
        """Wall time from the first record to the last."""
        ends = (int(process.records["end"].max()) for process in self.processes if len(process.records))
        return max(ends, default=0) / 1e9

    @property
    def every_start(self) -> Sequence[Process]:
        """The processes that ran the program, without child processes that ran no step."""
        started = [process for process in self.processes if process.instance is not None]
        others = [process for process in self.processes if not process.trace.process.get("role")]
        return started or [process for process in others if not process.started or any(process.window)]

    @property
    def instances(self) -> Sequence[Process]:
        """The processes that ran the program in the last start of the job."""
        last = max((process.start for process in self.every_start), default=0)
        return [process for process in self.every_start if process.start == last]


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read all traces of ``folder``; raise ArgumentError if there is none."""
    path = Path(folder)
    if not path.is_dir():
        raise ArgumentError(
            f"{path}: is not a folder; give the folder of `poprun-py --trace DIR` or IPU_EMU_TRACE=DIR"
        )
    traces = [read_process(file) for file in sorted(path.glob(f"*{SUFFIX}"))]
    if not traces:
        raise ArgumentError(f"{path}: has no traces; record one with `poprun-py --trace {path} ... program`")
    try:
        processes = _on_one_clock(traces)
    except OverflowError:
        raise ArgumentError(
            f"{path}: is damaged: the clocks of its processes are centuries apart; record it again"
        ) from None
    return Run(os.fspath(path), sorted(processes, key=_place))


def _on_one_clock(traces: Sequence[ProcessTrace]) -> list[Process]:
    aligned = clocks(traces)
    begins = [
        int(clock.aligned(trace.records["begin"][:1])[0])
        for trace, clock in zip(traces, aligned, strict=True)
        if len(trace.records)
    ]
    start = min(begins, default=0)
    return [
        _process(trace, instance, worker, clock, start)
        for trace, (instance, worker), clock in zip(traces, _instances(traces), aligned, strict=True)
    ]


def _place(process: Process) -> tuple[int, int, int, str]:
    launcher = process.trace.process.get("role") == "launcher"
    kind = 0 if launcher else 1 if process.instance is not None else 2
    return kind, process.start, process.instance or 0, process.label


def _process(trace: ProcessTrace, instance: int | None, worker: bool, clock: Clock, start: int) -> Process:
    about = trace.process
    records = trace.records.copy()
    last = int(max(records["begin"].max(), records["end"].max())) if len(records) else 0
    still = (records["kind"] == Kind.SPAN) & (records["end"] == 0)
    records["begin"], records["end"] = (
        clock.aligned(times, start) for times in (records["begin"], np.where(still, last, records["end"]))
    )
    unfinished = [(trace.names[int(record["name"])].name, int(record["begin"])) for record in records[still]]
    starts = _start(trace)
    again = f", start {starts + 1}" if starts else ""
    who = [str(about["role"])] if about.get("role") else [] if instance is None else [f"instance {instance}{again}"]
    label = ", ".join([*who, *([f"process {about.get('pid')}"] if worker or not who else [])])
    own = None if worker else instance
    return Process(
        trace,
        label,
        str(about.get("host", "")),
        own,
        worker,
        starts,
        clock.offset - start,
        clock.error,
        records,
        unfinished,
    )


def _start(trace: ProcessTrace) -> int:
    """The number of earlier starts of the job; 0 for the launcher, which outlives restarts."""
    return 0 if trace.process.get("role") else int(trace.process.get("environment", {}).get(RESTART_COUNT, 0))


def _instances(traces: Sequence[ProcessTrace]) -> list[tuple[int | None, bool]]:
    """The instance of each trace, and whether the trace is of a child process of the instance."""
    first = NAMES["replica_index_offset"]
    offsets = [
        None if trace.process.get("role") else trace.process.get("environment", {}).get(first) for trace in traces
    ]
    order = sorted({int(offset) for offset in offsets if offset is not None})
    started = {(t.process.get("host"), t.process.get("pid")) for t in traces if not t.process.get("role")}
    return [
        (
            None if offset is None else order.index(int(offset)),
            (trace.process.get("host"), trace.process.get("parent")) in started,
        )
        for trace, offset in zip(traces, offsets, strict=True)
    ]


@dataclass(frozen=True)
class Clock:
    """Offsets in nanoseconds to add to the times of a host, measured at some of these times.

    Between two measurements they are interpolated linearly, since clocks drift; before the first and after the last
    they are constant. ``error``: the bound of their error.
    """

    times: Sequence[int]
    offsets: Sequence[int]
    error: int

    @property
    def offset(self) -> int:
        """The offset of the earliest times."""
        return self.offsets[0]

    def aligned(self, times: NDArray[np.int64], start: int = 0) -> NDArray[np.int64]:
        """These times of the host on the common clock, since ``start``."""
        common: NDArray[np.int64] = times + (self.offset - start)
        if len(self.times) > 1:
            changes = np.array(self.offsets) - self.offset
            common += np.rint(np.interp(times, self.times, changes)).astype(np.int64)
        return common


def clocks(traces: Sequence[ProcessTrace]) -> list[Clock]:
    """The clock of each trace.

    Processes of one boot share a clock. Others are shifted by the offsets that instances measured against instance 0
    when they started and ended, or without these by the difference of their hosts' real-time clocks.
    """
    boots = [str(process.process.get("boot", "")) for process in traces]
    measured: dict[str, list[tuple[int, int, int]]] = {}
    for trace, boot in zip(traces, boots, strict=True):
        for entry in trace.facts.get("clock_offsets", []):
            offset = int(entry["at_ns"]), int(entry["offset_ns"]), int(entry["error_ns"])
            measured.setdefault(boot, []).append(offset)
    reference = next((boot for boot, offsets in measured.items() if offsets[0][1:] == (0, 0)), boots[0])
    real = {boot: _real_time(trace) for trace, boot in zip(traces, boots, strict=True)}
    return [_clock(measured.get(boot, []), real[boot], real[reference], here=boot == reference) for boot in boots]


def _clock(
    measured: Sequence[tuple[int, int, int]], own: tuple[int, int], other: tuple[int, int], *, here: bool
) -> Clock:
    if here:
        return Clock([0], [0], 0)
    if not measured:
        return Clock([0], [own[0] - other[0]], own[1] + other[1])
    times, offsets, errors = zip(*sorted(measured), strict=True)
    return Clock(times, offsets, max(errors))


def _real_time(trace: ProcessTrace) -> tuple[int, int]:
    """Real time minus monotonic time, and its error, nanoseconds."""
    clock: Mapping[str, Any] = trace.process.get("clock", {})
    return int(clock.get("realtime_ns", 0)) - int(clock.get("monotonic_ns", 0)), int(clock.get("error_ns", 0))
