"""Charts of a run, measured: time by category and instance, stragglers, bandwidth of collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log2
from typing import Any

from gcl.drawing.units import memory
from ipu_emu.cli.output.run_report.charts.colours import CATEGORIES, OTHER_TASK, PALETTE
from ipu_emu.cli.output.run_report.charts.figure import Figure, figure, plain, seconds_axis, stacked_bars
from ipu_emu.trace.report_data import categories_of

_DASHES = ("dash", "dot", "dashdot", "longdash")
_STRAGGLERS = {
    "works outside collectives": ("#f28e2b", "working_seconds"),
    "waits for others": ("#e4e7eb", "waiting_seconds"),
    "late by": ("#e15759", "late_seconds"),
}


def run_charts(data: Mapping[str, Any]) -> dict[str, Figure | None]:
    """The charts by name; None without data."""
    return {
        "stepping_seconds_by_category": _times(data["instances"], "stepping_seconds_by_category"),
        "seconds_by_category": _times(data["instances"], "seconds_by_category"),
        "stragglers": _stragglers(data["stragglers"]),
        "bandwidth": _bandwidth(data["collectives"]),
    }


def _times(instances: Sequence[Mapping[str, Any]], key: str) -> Figure | None:
    """Wall time of each instance by category, those with the most time first."""
    names = categories_of(instances, key)
    if not names:
        return None
    parts = {
        name: (CATEGORIES.get(name, OTHER_TASK), [row[key].get(name, 0.0) for row in instances]) for name in names
    }
    return stacked_bars([row["label"] for row in instances], parts, seconds_axis("wall time"))


def _stragglers(rows: Sequence[Mapping[str, Any]]) -> Figure | None:
    """The time of each instance while steps run: work and waiting, side by side."""
    if not rows:
        return None
    parts = {name: (colour, [row[key] for row in rows]) for name, (colour, key) in _STRAGGLERS.items()}
    bars = stacked_bars([row["label"] for row in rows], parts, seconds_axis("time while steps run"), barmode="group")
    bars["layout"]["height"] += 20 * len(rows)
    return bars


def _bandwidth(rows: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Bytes of a collective by the rate at which they move, a colour for each kind of collective, and the limits.

    The rate counts the bytes that the limit bounds, so that they can be compared.
    """
    moved = [row for row in rows if row["bytes"] and row["bandwidth_gigabytes_per_second"]]
    if not moved:
        return None
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(moved, key=lambda row: row["bytes"]):
        kinds.setdefault(" ".join(filter(None, (row["name"], row["operator"], row["method"]))), []).append(row)
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "cliponaxis": False,  # do not cut off marks at zero
            "name": plain(name),
            "x": [row["bytes"] for row in these],
            "y": [row["limited_gigabytes_per_second"] or row["bandwidth_gigabytes_per_second"] for row in these],
            "text": [f"{memory(row['bytes'])}, {row['calls']:,} calls{_share(row)}" for row in these],
            "hovertemplate": "%{text}: %{y:.4~g} GB/s<extra>%{fullData.name}</extra>",
            "marker": {"size": 9, "color": PALETTE[number % len(PALETTE)]},
        }
        for number, (name, these) in enumerate(kinds.items())
    ]
    least, most = (limit(row["bytes"] for row in moved) for limit in (min, max))
    traces += _limits(moved, least, most)
    low, high = floor(log2(least)) - 1, ceil(log2(most)) + 1
    marks = [2**power for power in range(low, high + 1, max(1, (high - low) // 8))]
    size = {
        "type": "log",
        "title": {"text": "bytes of a collective"},
        "tickmode": "array",
        "tickvals": marks,
        "ticktext": [memory(mark) for mark in marks],
        "range": [(low - 0.2) / log2(10), (high + 0.2) / log2(10)],
    }
    rate = {"title": {"text": "GB/s that the limit bounds"}, "rangemode": "tozero", "automargin": True}
    return figure(traces, 320, xaxis=size, yaxis=rate, showlegend=True)


def _share(row: Mapping[str, Any]) -> str:
    share = row["share_of_limit"]
    return "" if share is None else f", {share:.1%} of the limit"


def _limits(rows: Sequence[Mapping[str, Any]], least: int, most: int) -> Iterator[dict[str, Any]]:
    """A line for each limit that is known: of the host's memory, of a network interface."""
    known = dict.fromkeys(
        (f"{row['limit']} {row['limit_interface']}".strip(), row["limit_gigabytes_per_second"])
        for row in rows
        if row["limit_gigabytes_per_second"]
    )
    for number, (name, rate) in enumerate(known):
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": plain(f"limit: {name}"),
            "x": [least / 2, most * 2],
            "y": [rate, rate],
            "line": {"dash": _DASHES[number % len(_DASHES)], "color": "#1f2933"},
            "hovertemplate": "%{y:.4~g} GB/s<extra>%{fullData.name}</extra>",
        }
