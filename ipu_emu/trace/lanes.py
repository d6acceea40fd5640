"""Lanes: the spans of a run as rows of a timeline, packed for a page; too many short ones are merged."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import compress

import numpy as np
from numpy.typing import NDArray

from ipu_emu.trace.flows import flows
from ipu_emu.trace.run import Process, Run
from ipu_emu.trace.self_time import depths

__all__ = ["MOST_FLOWS", "MOST_SPANS", "packed_lanes"]

#: Spans of a page; a page with more would be larger than 25 MB and slow.
MOST_SPANS = 1_000_000
#: Transfers of a page; later ones are left out.
MOST_FLOWS = 20_000

_LANE = np.dtype(
    [("begin", np.float64), ("value", np.int32), ("length", np.float32), ("name", np.uint32), ("depth", np.uint8)]
)


def packed_lanes(run: Run, most: int = MOST_SPANS) -> dict[str, Any]:
    """The lanes of all processes and the names of their spans, as plain data.

    The arrays of a lane follow each other: begin, value, length, name, depth; times in microseconds.
    """
    names: list[Mapping[str, Any]] = []
    numbers: dict[str, int] = {}
    lanes = [(process, label, _lane(process, spans, names, numbers)) for process, label, spans in _rows(run)]
    total = sum(len(lane) for *_, lane in lanes)
    merged = [(process, label, _merged(lane, total, most)) for process, label, lane in lanes]
    packed = [_packed(process, label, lane) for process, label, lane in merged]
    return {"names": names, "lanes": packed, "flows": _flows(run)}


def _flows(run: Run) -> list[list[Any]]:
    """Transfers between lanes: the name, lane and microseconds of the sender, then those of the receiver."""
    places: dict[tuple[str, int], int] = {}
    for place, (process, number) in enumerate(_keys(run)):
        places[process.trace.path, number] = place
    made = []
    for flow in flows(run)[:MOST_FLOWS]:
        source = places.get((flow.sender.trace.path, flow.sender_thread))
        target = places.get((flow.receiver.trace.path, flow.receiver_thread))
        if source is not None and target is not None:
            made.append([flow.name, source, flow.sent / 1e3, target, flow.received / 1e3])
    return made


def _keys(run: Run) -> Iterator[tuple[Process, int]]:
    """The process and the thread or track of each lane, in order."""
    for process in run.processes:
        for number in np.unique(process.spans[_key(process)]):
            yield process, int(number)


def _key(process: Process) -> str:
    return "track" if process.trace.process.get("role") else "thread"


def _rows(run: Run) -> Iterator[tuple[Process, str, NDArray[Any]]]:
    """A row per thread; of the launcher, whose spans do not nest, a row per track."""
    for process, number in _keys(run):
        key = _key(process)
        spans = process.spans[process.spans[key] == number]
        about = process.trace.tracks[number].name if key == "track" else process.trace.threads.get(number)
        main = key == "thread" and number == process.main_thread
        yield process, process.label if main or not about else f"{process.label}: {about}", spans


def _lane(
    process: Process, spans: NDArray[Any], names: list[Mapping[str, Any]], numbers: dict[str, int]
) -> NDArray[Any]:
    order, depth = depths(spans)
    lane = np.zeros(len(spans), _LANE)
    spans = spans[order]
    lane["begin"], lane["length"] = spans["begin"] / 1e3, (spans["end"] - spans["begin"]) / 1e3
    lane["value"], lane["depth"] = np.clip(spans["value"], -(2**31), 2**31 - 1), np.minimum(depth, 255)
    known, places = np.unique(spans["name"], return_inverse=True)
    own = [_number(process, int(number), names, numbers) for number in known]
    lane["name"] = np.array(own, np.uint32)[places] if len(own) else 0
    return lane


def _number(process: Process, number: int, names: list[Mapping[str, Any]], numbers: dict[str, int]) -> int:
    name = process.trace.names[number]
    about = {"name": name.name, "category": name.category, "args": dict(name.args)}
    key = repr(about)
    if key not in numbers:
        numbers[key] = len(names)
        names.append(about)
    return numbers[key]


def _merged(lane: NDArray[Any], total: int, most: int) -> NDArray[Any]:
    """Keep the longest spans; of the others those of one depth in one interval become one, named after the first."""
    share = int(len(lane) * most / total) if total > most else len(lane)
    if share >= len(lane):
        return lane
    keep = max(share // 2, 1)
    longest = np.sort(lane["length"])[-keep]
    long, short = lane[lane["length"] >= longest][:share], lane[lane["length"] < longest]
    width = (lane["begin"].max() - lane["begin"].min() + 1) / max(share - len(long), 1)
    cells = np.floor(short["begin"] / width).astype(np.int64) * 256 + short["depth"]
    _, first = np.unique(cells, return_index=True)
    order = np.argsort(cells, kind="stable")
    bounds = np.searchsorted(cells[order], cells[first])
    merged = short[first].copy()
    merged["length"] = np.add.reduceat(short["length"][order], bounds) if len(order) else 0
    both = np.concatenate([long, merged])
    return both[np.lexsort((both["depth"], both["begin"]))]


def _packed(process: Process, label: str, lane: NDArray[Any]) -> dict[str, Any]:
    data = b"".join(np.ascontiguousarray(lane[column]).tobytes() for column in _LANE.names or ())
    return {
        "label": label,
        "process": process.label,
        "count": len(lane),
        "data": b64encode(compress(data, 6)).decode(),
    }
