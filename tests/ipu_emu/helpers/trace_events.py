"""Trace events: a strict check of files for ui.perfetto.dev against the Trace Event Format.

It is not Perfetto's importer. It checks the rules of the format for the kinds of events that we write, and events
that the importer is known to drop: spans of a row that overlap without nesting, ends of arrows outside of spans, and
arrows that end before they start.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["checked_events"]

Event = dict[str, Any]
_METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
_UNIT = 1e-3  # a nanosecond, in microseconds


def checked_events(trace: bytes | str) -> list[Event]:
    """The events of a trace, after checking that all are valid."""
    document = json.loads(trace, parse_constant=_not_json)
    assert isinstance(document, dict)
    assert document["displayTimeUnit"] in ("ms", "ns")
    events: list[Event] = document["traceEvents"]
    for event in events:
        _check(event)
    spans = _nested(events)
    _check_arrows(events, spans)
    return events


def _not_json(text: str) -> Any:
    raise AssertionError(f"{text} is not JSON")


def _check(event: Event) -> None:
    """Check the fields of one event."""
    phase = event["ph"]
    assert phase in ("X", "M", "C", "s", "f", "i"), event
    assert isinstance(event["name"], str), event
    assert isinstance(event["pid"], int), event
    assert isinstance(event.get("args", {}), dict), event
    if phase == "M":
        field, kind = _METADATA[event["name"]]
        assert type(event["args"][field]) is kind, event
        assert event["name"].startswith("process") or isinstance(event["tid"], int), event
        return
    assert _is_time(event["ts"]), event
    assert phase == "C" or isinstance(event["tid"], int), event
    assert isinstance(event.get("cat", ""), str), event
    if phase == "X":
        assert _is_time(event["dur"]), event
    elif phase == "C":
        assert event["args"], event
        assert all(value is None or _is_number(value) for value in event["args"].values()), event
    elif phase == "i":
        assert event["s"] in ("g", "p", "t"), event
    else:
        assert isinstance(event["id"], int | str), event
        assert event.get("bp", "e") == "e", event


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_time(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _nested(events: Sequence[Event]) -> Mapping[tuple[int, int], Sequence[tuple[float, float]]]:
    """Start and end of the spans of each row; any two of a row nest, or one ends before the other begins."""
    rows: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for row, spans in rows.items():
        spans.sort(key=lambda span: (span[0], -span[1]))
        open_ones: list[tuple[float, float]] = []
        for begin, end in spans:
            while open_ones and open_ones[-1][1] <= begin + _UNIT / 2:
                open_ones.pop()
            assert not open_ones or end <= open_ones[-1][1] + _UNIT / 2, (row, (begin, end), open_ones[-1])
            open_ones.append((begin, end))
    return rows


def _check_arrows(events: Sequence[Event], spans: Mapping[tuple[int, int], Sequence[tuple[float, float]]]) -> None:
    """Check that every arrow has one start and one end, in this order, each in a span."""
    ends: dict[tuple[Any, ...], dict[str, Event]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            key = event.get("cat"), event["name"], event["id"]
            assert event["ph"] not in ends[key], event
            ends[key][event["ph"]] = event
            around = spans[event["pid"], event["tid"]]
            assert any(begin <= event["ts"] <= end for begin, end in around), event
    for key, both in ends.items():
        assert both.keys() == {"s", "f"}, key
        assert both["s"]["ts"] <= both["f"]["ts"], key
