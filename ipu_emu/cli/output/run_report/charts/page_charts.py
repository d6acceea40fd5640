"""Page charts: the figures of a page and the library that draws them, or a note that it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipu_emu.cli.output.run_report.charts.figure import Figure
from ipu_emu.cli.output.run_report.charts.library import MISSING, library_script, packed
from ipu_emu.cli.output.run_report.charts.program_charts import program_charts
from ipu_emu.cli.output.run_report.charts.run_charts import run_charts

__all__ = ["all_charts", "page_charts"]


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
