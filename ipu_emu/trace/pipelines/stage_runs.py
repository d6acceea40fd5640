"""StageRun: one stage of a pipeline at work on one micro-batch, from its first instruction to its last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ipu_emu.trace.run import STEP, Process


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
    steps = [number for number, name in names.items() if name.name == STEP]
    begins = np.sort(spans["begin"][np.isin(spans["name"], steps)])
    stage_spans = spans[np.isin(spans["name"], [*stages]) & np.isin(spans["track"], [*places])]
    stage_spans = stage_spans[np.lexsort((stage_spans["begin"], stage_spans["track"], stage_spans["thread"]))]
    stage = np.array([stages[name] for name in stage_spans["name"].tolist()], np.int64)
    step = np.searchsorted(begins, stage_spans["begin"], side="right")
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
