"""Stages of a pipeline in a trace: when each worked on which micro-batch, and how well they are balanced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from ipu_emu.trace.run import Process, Run
from popdist_py.trace.records import Category

_WORK = (Category.COMPUTE.value, Category.UPDATE.value, Category.STREAMING_MEMORY.value)


@dataclass(frozen=True)
class StageBalance:
    """Seconds of work by stage and by IPU, summed over replicas and instances; waiting is not work."""

    stages: Mapping[int, float]
    ipus: Mapping[int, float]
    #: Seconds in which steps run, summed over replicas: the most that an IPU can work.
    available: Mapping[int, float]

    @property
    def slowest(self) -> int:
        """The IPU that works longest."""
        return max(self.ipus, key=lambda ipu: self.ipus[ipu])

    @property
    def busy(self) -> Mapping[int, float]:
        """The fraction of time in which each IPU works."""
        return {
            ipu: min(seconds / (self.available.get(ipu) or seconds or 1), 1.0) for ipu, seconds in self.ipus.items()
        }

    @property
    def efficiency(self) -> float:
        """The fraction of time in which the IPUs work; the rest is bubble and waiting."""
        available = sum(self.available.values())
        return min(sum(self.ipus.values()) / available, 1.0) if available else 0.0

    @property
    def imbalance(self) -> float:
        """The work of the busiest IPU over that of the average one: 1 if all are busy for the same time."""
        return self.ipus[self.slowest] / (sum(self.ipus.values()) / len(self.ipus)) if self.ipus else 1.0


def stage_times(run: Run) -> StageBalance | None:
    """The times of a pipeline's stages; None if the run has no pipeline."""
    stages: dict[int, float] = {}
    ipus: dict[int, float] = {}
    available: dict[int, float] = {}
    for process in run.instances:
        _add(process, stages, ipus, available)
    tables = (dict(sorted(table.items())) for table in (stages, ipus, available))
    return StageBalance(*tables) if stages else None


def _add(process: Process, stages: dict[int, float], ipus: dict[int, float], available: dict[int, float]) -> None:
    start, stop = process.window
    names, tracks, spans = process.trace.names, process.trace.tracks, process.spans
    keys, places = np.unique(spans["name"].astype(np.int64) << 16 | spans["track"], return_inverse=True)
    seconds = np.bincount(places, (spans["end"] - spans["begin"]) / 1e9, len(keys))
    lanes = set()
    for key, total in zip(keys.tolist(), seconds, strict=True):
        name, place = names[key >> 16], tracks[key & 0xFFFF]
        if "stage" in name.args and "ipu" in place.args and name.category in _WORK:
            stage, ipu = int(name.args["stage"]), int(place.args["ipu"])
            stages[stage] = stages.get(stage, 0.0) + float(total)
            ipus[ipu] = ipus.get(ipu, 0.0) + float(total)
            lanes.add((key & 0xFFFF, ipu))
    for _, ipu in lanes:
        available[ipu] = available.get(ipu, 0.0) + (stop - start) / 1e9


@dataclass(frozen=True)
class StageRun:
    """Times in nanoseconds since the run began; ``step`` counts the steps of the process."""

    thread: int
    track: int
    stage: int
    replica: int
    ipu: int
    step: int
    micro_batch: int
    begin: int
    end: int


def stage_runs(process: Process) -> Sequence[StageRun]:
    """The stages that a process ran, thread by thread and IPU by IPU; none without a pipeline."""
    names, tracks, spans = process.trace.names, process.trace.tracks, process.spans
    stages = {number: int(name.args["stage"]) for number, name in names.items() if "stage" in name.args}
    places = {
        number: (int(track.args["replica"]), int(track.args["ipu"]))
        for number, track in tracks.items()
        if "ipu" in track.args
    }
    stage_spans = spans[np.isin(spans["name"], [*stages]) & np.isin(spans["track"], [*places])]
    stage_spans = stage_spans[np.lexsort((stage_spans["begin"], stage_spans["track"], stage_spans["thread"]))]
    stage = np.array([stages[name] for name in stage_spans["name"].tolist()], np.int64)
    step = np.searchsorted(np.sort(process.steps["begin"]), stage_spans["begin"], side="right")
    keys = np.stack([stage_spans["thread"], stage_spans["track"], stage, step, stage_spans["value"]]).astype(np.int64)
    bounds = [0, *(1 + np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(0))).tolist(), len(stage_spans)]
    runs = []
    for first, following in pairwise(bounds if len(stage_spans) else []):
        thread, track, number, count, micro_batch = keys[:, first].tolist()
        begin, end = int(stage_spans["begin"][first]), int(stage_spans["end"][following - 1])
        runs.append(StageRun(thread, track, number, *places[track], count, micro_batch, begin, end))
    return runs


def handed_over(runs: Sequence[StageRun]) -> Iterator[tuple[StageRun, StageRun]]:
    """Pairs of stages of a replica between which a micro-batch passes to another IPU."""
    where = {(run.replica, run.step, run.micro_batch, run.stage): run for run in runs}
    for run in runs:
        next_one = where.get((run.replica, run.step, run.micro_batch, run.stage + 1))
        if next_one and next_one.ipu != run.ipu:
            yield run, next_one


def working_ipus(spans: Iterable[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """The times at which the number of open ``spans`` (begin, end) changes, each with the new number."""
    changes: defaultdict[int, int] = defaultdict(int)
    for begin, end in spans:
        changes[begin] += 1
        changes[end] -= 1
    times = sorted(time for time, change in changes.items() if change)
    return list(zip(times, accumulate(changes[time] for time in times), strict=True))
