"""Figure: a chart as plain data, traces and layout, in plotly's format; and functions shared by all charts.

Values are those of the report, never rounded; texts are escaped, because plotly reads some HTML in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, log2
from typing import Any

from gcl.drawing.units import memory

Figure = dict[str, Any]
_ROW, _AROUND, _HIGHEST = 26, 110, 2000
#: An axis of names, at some distance from the bars.
ROWS: Mapping[str, Any] = {
    "type": "category",
    "automargin": True,
    "fixedrange": True,
    "ticks": "outside",
    "ticklen": 6,
    "tickcolor": "rgba(0, 0, 0, 0)",
}


def figure(traces: Sequence[Mapping[str, Any]], height: int, **layout: Any) -> Figure:
    """A figure with its legend above, ``height`` pixels high."""
    common = {
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 40},
        "font": {"family": "sans-serif", "size": 12, "color": "#1f2933"},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hoverlabel": {"namelength": -1},
    }
    return {"data": [dict(trace) for trace in traces], "layout": common | layout}


def stacked_bars(
    labels: Sequence[str], parts: Mapping[str, tuple[str, Sequence[float]]], axis: Mapping[str, Any], **layout: Any
) -> Figure:
    """A bar for each label; each part, by its name, has a colour and a value for every bar."""
    y = distinct(labels)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plain(name),
            "y": y,
            "x": list(values),
            "marker": {"color": colour},
        }
        for name, (colour, values) in parts.items()
    ]
    rows = {**ROWS, "autorange": "reversed"}
    common = {"barmode": "stack", "bargap": 0.2, "showlegend": True, "xaxis": dict(axis), "yaxis": rows}
    return figure(traces, min(_AROUND + _ROW * len(labels), _HIGHEST), **{**common, **layout})


def seconds_axis(title: str) -> Mapping[str, Any]:
    """An axis of times in seconds, with marks such as 20 ms."""
    return {
        "title": {"text": title},
        "tickformat": "~s",
        "hoverformat": ".4~s",
        "ticksuffix": "s",
        "rangemode": "tozero",
        "automargin": True,
    }


def bytes_axis(title: str, most: float) -> Mapping[str, Any]:
    """An axis up to ``most`` bytes, with marks at round numbers of KiB, MiB, ..."""
    step = 1 << max(0, ceil(log2(max(most, 1) / 8)))
    marks = [number * step for number in range(int(most / step) + 2)]
    return {
        "title": {"text": title},
        "tickmode": "array",
        "tickvals": marks,
        "ticktext": [memory(mark) for mark in marks],
        "rangemode": "tozero",
        "automargin": True,
    }


def plain(text: str) -> str:
    """A text escaped such that plotly reads no HTML in it."""
    return escape(text, quote=False)


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels as plain texts, made unique by numbers."""
    counts: dict[str, int] = {}
    texts = []
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
        texts.append(plain(label if counts[label] == 1 else f"{label} ({counts[label]})"))
    return texts
