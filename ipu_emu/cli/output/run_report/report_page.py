"""Run report as one HTML page that needs no network: numbers, charts, and a timeline of all processes."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from ipu_emu.cli.output.chart import script_json
from ipu_emu.cli.output.run_report.charts.colours import CATEGORIES
from ipu_emu.cli.output.run_report.charts.figure import Figure
from ipu_emu.cli.output.run_report.charts.library import MISSING, library_script, packed
from ipu_emu.cli.output.run_report.charts.program_charts import program_charts
from ipu_emu.cli.output.run_report.charts.run_charts import run_charts
from ipu_emu.trace.findings import RunAnalysis
from ipu_emu.trace.timelines.lanes import packed_lanes


def report_html(analysis: RunAnalysis, data: Mapping[str, Any]) -> bytes:
    """The page of a run; ``data`` are the numbers that it shows."""
    folder = files("ipu_emu.cli.output.run_report")
    parts = {name: folder.joinpath(file).read_text(encoding="utf-8") for name, file in _FILES.items()}
    page = Template(folder.joinpath("report.html").read_text(encoding="utf-8"))
    parts |= {"charts": script_json(page_charts(data), indent=None), "colours": script_json(CATEGORIES, indent=None)}
    return page.substitute(
        parts,
        title=escape(f"{analysis.run.folder}: traced run"),
        data=script_json(data, indent=None),
        spans=script_json(packed_lanes(analysis.run), indent=None),
    ).encode(errors="replace")


_FILES = {
    "style": "report.css",
    "tables": "tables.js",
    "chart_places": "charts.js",
    "timeline": "timeline.js",
    "program": "program.js",
    "report": "report.js",
}


def page_charts(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Figures by name, the library that draws them, and a note if it is missing."""
    script = library_script()
    if script is None:
        return {"figures": {}, "library": None, "missing": MISSING}
    return {"figures": all_charts(data), "library": packed(script), "missing": None}


def all_charts(data: Mapping[str, Any]) -> dict[str, Figure]:
    """The figures of a report by name."""
    charts = {**run_charts(data), **program_charts(data)}
    return {name: chart for name, chart in charts.items() if chart is not None}
