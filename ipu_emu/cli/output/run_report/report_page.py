"""Run report as one HTML page that needs no network: numbers, charts, and a timeline of all processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from ipu_emu.cli.output.run_report.charts.colours import CATEGORIES
from ipu_emu.cli.output.run_report.charts.page_charts import page_charts
from ipu_emu.trace.findings import RunAnalysis
from ipu_emu.trace.timelines.lanes import packed_lanes

__all__ = ["report_html"]


def report_html(analysis: RunAnalysis, data: Mapping[str, Any]) -> bytes:
    """The page of a run; ``data`` are the numbers that it shows."""
    folder = files("ipu_emu.cli.output.run_report")
    parts = {name: folder.joinpath(file).read_text(encoding="utf-8") for name, file in _FILES.items()}
    page = Template(folder.joinpath("report.html").read_text(encoding="utf-8"))
    parts |= {"charts": _json(page_charts(data)), "colours": _json(CATEGORIES)}
    return page.substitute(
        parts,
        title=escape(f"{analysis.run.folder}: traced run"),
        data=_json(data),
        spans=_json(packed_lanes(analysis.run)),
    ).encode(errors="replace")


_FILES = {
    "style": "report.css",
    "tables": "tables.js",
    "chart_places": "charts.js",
    "timeline": "timeline.js",
    "program": "program.js",
    "report": "report.js",
}


def _json(value: Any) -> str:
    """JSON that is safe in a script element."""
    return json.dumps(value, default=str).replace("<", "\\u003c")
