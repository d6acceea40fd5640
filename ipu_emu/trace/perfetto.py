"""Perfetto: a run as trace events for ui.perfetto.dev: spans, instants, counters and flows of all processes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ipu_emu.trace.run import Process, Run
from popdist_py.trace.records import Kind

__all__ = ["trace_events"]


def trace_events(run: Run) -> bytes:
    """The run in Chrome's trace event format, times in microseconds."""
    events = [event for number, process in enumerate(run.processes) for event in _events(number, process)]
    trace = {"displayTimeUnit": "ns", "traceEvents": _finite(events)}
    return json.dumps(trace, default=str, allow_nan=False).encode()


def _finite(value: Any) -> Any:
    """Replace numbers that JSON has not, NaN and infinity, by null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value


def _events(number: int, process: Process) -> Iterator[dict[str, Any]]:
    names, tracks, threads = process.trace.names, process.trace.tracks, process.trace.threads
    yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"{process.label} on {process.host}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
    lanes: dict[tuple[int, int], int] = {}
    for each in process.records:
        lane = (int(each["thread"]), int(each["track"]) if process.trace.process.get("role") else 0)
        if lane not in lanes:
            lanes[lane] = len(lanes)
            thread = tracks[lane[1]].name or threads.get(lane[0], str(lane[0]))
            args = {"name": thread}
            yield {"ph": "M", "name": "thread_name", "pid": number, "tid": lanes[lane], "args": args}
        name, track = names[int(each["name"])], tracks[int(each["track"])]
        yield {
            "name": name.name,
            "cat": name.category,
            "pid": number,
            "tid": lanes[lane],
            "ts": each["begin"] / 1e3,
            **_details(each, {**name.args, **track.args, "value": int(each["value"])}),
        }


def _details(each: np.void, args: dict[str, Any]) -> dict[str, Any]:
    match int(each["kind"]):
        case Kind.SPAN:
            return {"ph": "X", "dur": (each["end"] - each["begin"]) / 1e3, "args": args}
        case Kind.COUNTER:
            return {"ph": "C", "args": {"value": float(np.int64(each["value"]).view(np.float64))}}
        case Kind.FLOW_OUT:
            return {"ph": "s", "id": int(each["value"])}
        case Kind.FLOW_IN:
            return {"ph": "f", "bp": "e", "id": int(each["value"])}
    return {"ph": "i", "s": "t", "args": args}
