"""Charts of compiled programs: memory of each IPU by use and over time, the schedule of a pipeline with its bubbles.

They are modelled, except the measured fraction of time in which each IPU of a pipeline worked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from re import search
from typing import Any

from gcl.drawing.units import TimeUnit, memory
from ipu_emu.cli.output.run_report.charts.colours import BUBBLE, OTHER_TASK, PALETTE, TASKS
from ipu_emu.cli.output.run_report.charts.figure import (
    ROWS,
    Figure,
    bytes_axis,
    figure,
    plain,
    seconds_axis,
    stacked_bars,
)

_BUBBLE = "bubble"


def program_charts(data: Mapping[str, Any]) -> dict[str, Figure | None]:
    """The charts by name; None without data."""
    charts: dict[str, Figure | None] = {"busy": None if data["stages"] is None else _busy(data["stages"])}
    for number, program in enumerate(data["programs"]):
        charts[f"memory-{number}"] = _uses(program)
        for ipu in program["memory"]:
            charts[f"liveness-{number}-{ipu['ipu']}"] = _liveness(ipu["live_bytes"])
        if program["pipeline"]:
            charts[f"schedule-{number}"] = _schedule(program["pipeline"])
    return charts


def _uses(program: Mapping[str, Any]) -> Figure | None:
    """Bytes of each IPU by use, with a line at the memory of an IPU."""
    ipus, limit = program["memory"], program["bytes_per_ipu"]
    if not ipus:
        return None
    parts = {
        use: (PALETTE[index % len(PALETTE)], [ipu["bytes_by_use"][use] for ipu in ipus])
        for index, use in enumerate(ipus[0]["bytes_by_use"])
        if any(ipu["bytes_by_use"][use] for ipu in ipus)
    }
    most = max(limit, *(ipu["bytes"] for ipu in ipus))
    bars = stacked_bars([f"IPU {ipu['ipu']}" for ipu in ipus], parts, bytes_axis("memory of an IPU", most))
    for trace in bars["data"]:
        trace["text"] = [memory(size) for size in trace["x"]]
        trace |= {"textposition": "none", "hovertemplate": "%{y}: %{text}<extra>%{fullData.name}</extra>"}
    line = {"type": "line", "x0": limit, "x1": limit, "y0": 0, "y1": 1, "yref": "paper"}
    bars["layout"]["shapes"] = [line | {"line": {"color": "#e12d39", "dash": "dash", "width": 2}}]
    note = {"x": limit, "y": 0, "yref": "paper", "yanchor": "bottom", "xanchor": "right", "showarrow": False}
    bars["layout"]["annotations"] = [note | {"text": f"{memory(limit)} in an IPU"}]
    bars["layout"]["xaxis"]["range"] = [0, most * 1.02]
    return bars


def _liveness(live: Sequence[int]) -> Figure | None:
    """The bytes that are live during each instruction, except those that are always live."""
    if not live:
        return None
    trace = {
        "type": "scatter",
        "mode": "lines",
        "fill": "tozeroy",
        "line": {"shape": "hvh", "color": PALETTE[0], "width": 1},
        "x": list(range(len(live))),
        "y": list(live),
        "text": [memory(size) for size in live],
        "hovertemplate": "instruction %{x}: %{text}<extra></extra>",
    }
    x = {"title": {"text": "instruction"}, "range": [-0.5, len(live) - 0.5], "automargin": True}
    return figure([trace], 240, xaxis=x, yaxis=bytes_axis("not always live", max(live)), hovermode="x")


def _schedule(pipeline: Mapping[str, Any]) -> Figure:
    """A row for each IPU of a replica, a box for each task with the number of its micro-batch, and the bubbles."""
    tasks: dict[str, list[Sequence[Any]]] = {}
    for span in pipeline["spans"]:
        tasks.setdefault(span[4], []).append(span)
    bubbles: list[Sequence[Any]] = [
        [ipu, start, length, _BUBBLE, _BUBBLE] for ipu, start, length in _bubbles(pipeline)
    ]
    kinds = {**tasks, **({_BUBBLE: bubbles} if bubbles else {})}
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plain(kind),
            "y": [f"IPU {ipu}" for ipu, *_ in spans],
            "base": [start for _, start, *_ in spans],
            "x": [length for _, _, length, *_ in spans],
            "text": [match[1] if (match := search(r"micro-batch (\d+)", name)) else "" for *_, name, _ in spans],
            "hovertext": [f"{plain(name)}: {TimeUnit.of(length).text(length)}" for _, _, length, name, _ in spans],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "marker": {
                "color": BUBBLE if kind == _BUBBLE else TASKS.get(kind, OTHER_TASK),
                "line": {"color": "#fff", "width": 0 if kind == _BUBBLE else 0.5},
            },
        }
        for kind, spans in kinds.items()
    ]
    rows = [f"IPU {ipu}" for ipu in sorted({ipu for ipu, *_ in pipeline["spans"]})]
    order = {"categoryorder": "array", "categoryarray": rows, "range": [len(rows) - 0.5, -0.5]}
    y = {**ROWS, **order}
    layout = {"barmode": "overlay", "bargap": 0.15, "showlegend": True, "uniformtext": {"mode": "hide", "minsize": 9}}
    height = 110 + 34 * len(rows)
    return figure(traces, height, xaxis=seconds_axis("modelled time of a step"), yaxis=y, **layout)


def _bubbles(pipeline: Mapping[str, Any]) -> Iterator[tuple[int, float, float]]:
    """IPU, start and length of the times in which an IPU does nothing, between the start of the step and its end."""
    least = pipeline["seconds"] * 1e-6  # shorter gaps are rounding errors
    for ipu in sorted({ipu for ipu, *_ in pipeline["spans"]}):
        free = 0.0
        for start, length in sorted((start, length) for on, start, length, *_ in pipeline["spans"] if on == ipu):
            if start - free > least:
                yield ipu, free, start - free
            free = max(free, start + length)
        if pipeline["seconds"] - free > least:
            yield ipu, free, pipeline["seconds"] - free


def _busy(stages: Mapping[str, Any]) -> Figure:
    """The fraction of time in which each emulated IPU works, as measured on the hosts."""
    shares = stages["busy_by_ipu"]
    parts = {
        "works": (TASKS["forward"], list(shares.values())),
        "waits": (BUBBLE, [1 - share for share in shares.values()]),
    }
    axis = {"title": {"text": "part of the time in which steps run"}, "tickformat": ".0%", "range": [0, 1]}
    return stacked_bars([f"IPU {ipu}" for ipu in shares], parts, {**axis, "hoverformat": ".1%"})
