"""Perfetto: a run as trace events for ui.perfetto.dev: spans, instants, counters and flows of all processes.

Every IPU of a replica has a row. The instructions of a pipeline are nested in their stage, and an arrow leads from a
stage to the next one of its micro-batch; a counter has the number of IPUs that work.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ipu_emu.trace.pipelines.stages import StageRun, handed_over, stage_runs, working_ipus
from ipu_emu.trace.run import Process, Run
from popdist_py.trace.records import Kind

#: The end of a flow, at the span that is open then.
_ARRIVES = {"ph": "f", "bp": "e"}


def trace_events(run: Run) -> bytes:
    """The run in Chrome's trace event format, times in microseconds."""
    events = [event for number, process in enumerate(run.processes) for event in _events(number, process)]
    trace = {"displayTimeUnit": "ns", "traceEvents": _finite(events)}
    return json.dumps(trace, default=str, allow_nan=False).encode()


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value


def _events(number: int, process: Process) -> Iterator[dict[str, Any]]:
    names, tracks = process.trace.names, process.trace.tracks
    yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"{process.label} on {process.host}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
    lanes = _Lanes(process)
    runs = stage_runs(process)
    for run in runs:
        yield from lanes.named(number, run.thread, run.track)
        args = {"stage": run.stage, "micro-batch": run.micro_batch, "step": run.step}
        place = {"pid": number, "tid": lanes.number(run.thread, run.track)}
        times = {"ts": run.begin / 1e3, "dur": (run.end - run.begin) / 1e3}
        yield {"name": f"stage {run.stage}", "cat": "stage", "ph": "X", **place, **times, "args": args}
    for id, (sender, receiver) in enumerate(handed_over(runs)):
        for run, phase, at in ((sender, {"ph": "s"}, sender.end - 1), (receiver, _ARRIVES, receiver.begin)):
            place = {"pid": number, "tid": lanes.number(run.thread, run.track)}
            yield {
                "name": f"process {number}: micro-batch",
                "cat": "stage",
                **place,
                "ts": at / 1e3,
                "id": id,
                **phase,
            }
    yield from _at_work(number, runs)
    for record in process.records:
        lane = int(record["thread"]), int(record["track"])
        yield from lanes.named(number, *lane)
        name, track = names[int(record["name"])], tracks[int(record["track"])]
        yield {
            "name": name.name,
            "cat": name.category,
            "pid": number,
            "tid": lanes.number(*lane),
            "ts": record["begin"] / 1e3,
            **_details(record, {**name.args, **track.args, "value": int(record["value"])}),
        }


def _at_work(number: int, runs: Sequence[StageRun]) -> Iterator[dict[str, Any]]:
    """The number of IPUs of a pipeline that work at the same time, summed over the replicas of the process."""
    for at, count in working_ipus((run.begin, run.end) for run in runs):
        yield {"name": "IPUs at work", "ph": "C", "pid": number, "ts": at / 1e3, "args": {"IPUs": count}}


class _Lanes:
    """The rows of a process: its threads, and their work for an IPU or, in the launcher, for an instance."""

    def __init__(self, process: Process) -> None:
        self._trace = process.trace
        self._numbers: dict[tuple[int, int], int] = {}
        self._tracks = {
            number
            for number, track in process.trace.tracks.items()
            if "ipu" in track.args or process.trace.process.get("role")
        }

    def number(self, thread: int, track: int) -> int:
        """The number of a row."""
        lane = thread, track if track in self._tracks else 0
        return self._numbers.setdefault(lane, len(self._numbers))

    def named(self, process: int, thread: int, track: int) -> Iterator[dict[str, Any]]:
        """The name of a row, if it is new."""
        known = len(self._numbers)
        row = self.number(thread, track)
        if row == known:
            name = self._trace.tracks[track].name if track in self._tracks else ""
            args = {"name": name or self._trace.threads.get(thread, str(thread))}
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": row, "args": args}


def _details(record: np.void, args: dict[str, Any]) -> dict[str, Any]:
    match int(record["kind"]):
        case Kind.SPAN:
            return {"ph": "X", "dur": (record["end"] - record["begin"]) / 1e3, "args": args}
        case Kind.COUNTER:
            return {"ph": "C", "args": {"value": float(np.int64(record["value"]).view(np.float64))}}
        case Kind.FLOW_OUT:
            return {"ph": "s", "id": int(record["value"])}
        case Kind.FLOW_IN:
            return {**_ARRIVES, "id": int(record["value"])}
    return {"ph": "i", "s": "t", "args": args}
