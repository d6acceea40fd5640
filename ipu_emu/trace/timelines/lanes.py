"""Lanes: the spans of a run as rows of a timeline, packed for a page; too many short ones are merged.

A thread has a row, and one more for each IPU of a replica that it emulates.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import compress

import numpy as np
from numpy.typing import NDArray

from ipu_emu.trace.run import Process, Run
from ipu_emu.trace.self_time import depths
from ipu_emu.trace.timelines.flows import flows

#: The most spans of a page; with more it would be larger than 24 MiB and slow.
MOST_SPANS = 1_000_000
#: The most transfers of a page; later ones are left out.
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
    lanes = [(row, _lane(row.process, spans, names, numbers)) for row, spans in _rows(run)]
    total = sum(len(lane) for _, lane in lanes)
    packed = [_packed(row, _merged(lane, total, most)) for row, lane in lanes]
    return {"names": names, "lanes": packed, "flows": _flows(run, [row for row, _ in lanes])}


def _flows(run: Run, rows: Sequence[_Row]) -> list[list[Any]]:
    """Transfers between lanes: the name, lane and microseconds of the sender, then those of the receiver."""
    places: dict[tuple[str, int], int] = {}
    for index, row in enumerate(rows):
        places.setdefault((row.process.trace.path, row.thread), index)
    transfers = []
    for flow in flows(run)[:MOST_FLOWS]:
        source = places.get((flow.sender.trace.path, flow.sender_thread))
        target = places.get((flow.receiver.trace.path, flow.receiver_thread))
        if source is not None and target is not None:
            transfers.append([flow.name, source, flow.sent / 1e3, target, flow.received / 1e3])
    return transfers


@dataclass(frozen=True)
class _Row:
    """A row of the timeline; rows of one thread hold parts of the same nested spans, and share its number."""

    process: Process
    label: str
    thread: int


def _rows(run: Run) -> Iterator[tuple[_Row, NDArray[Any]]]:
    """A row per thread, then those of its IPUs; of the launcher, whose spans do not nest, a row per track."""
    for process in run.processes:
        key = "track" if process.trace.process.get("role") else "thread"
        for number in np.unique(process.spans[key]).tolist():
            spans = process.spans[process.spans[key] == number]
            if key == "track":
                yield _Row(process, _label(process, process.trace.tracks[number].name), number), spans
            else:
                yield from _rows_of(process, number, spans)


def _rows_of(process: Process, thread: int, spans: NDArray[Any]) -> Iterator[tuple[_Row, NDArray[Any]]]:
    tracks = process.trace.tracks
    ipus = [number for number in np.unique(spans["track"]).tolist() if "ipu" in tracks[number].args]
    own = "" if thread == process.main_thread else process.trace.threads.get(thread, "")
    rest = spans[~np.isin(spans["track"], ipus)]
    if len(rest):
        yield _Row(process, _label(process, own), thread), rest
    for number in ipus:
        yield _Row(process, _label(process, tracks[number].name), thread), spans[spans["track"] == number]


def _label(process: Process, about: str) -> str:
    return f"{process.label}: {about}" if about else process.label


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
    """Keep the longest spans; merge the others of one depth in one interval, under the name of the first."""
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


def _packed(row: _Row, lane: NDArray[Any]) -> dict[str, Any]:
    data = b"".join(np.ascontiguousarray(lane[column]).tobytes() for column in _LANE.names or ())
    return {
        "label": row.label,
        "process": row.process.label,
        "thread": f"{row.process.trace.path} {row.thread}",
        "count": len(lane),
        "data": b64encode(compress(data, 6)).decode(),
    }
