"""Prediction pictures: the terms of a step, the memory of each IPU, and the effect of other rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gcl.drawing.canvas import INK, MARGIN
from gcl.drawing.units import TimeUnit, memory
from ipu_emu.cli.output.chart import COLOURS, Chart, document

_WIDTH, _BAR, _LEFT = 1000, 22, MARGIN + 120
_ROOM = _WIDTH - MARGIN - _LEFT


def picture(path: Path, facts: dict[str, Any]) -> bytes:
    """The content of a file of the type given by the suffix of ``path``."""
    job = facts["job"]
    title = f"{job['model']} on {job['replicas']} x {job['ipus']} IPUs of {job['system']}"
    ipus, changes = facts["memory"]["ipus"], facts["what_if"]
    chart = Chart(_WIDTH, 250 + 26 * (len(ipus) + len(changes)))
    low, high = facts["samples_per_second_90"]
    chart.text(MARGIN, 36, title, size=16, bold=True)
    said = f"{facts['samples_per_second']:,.1f} samples/s, 90 %: {low:,.0f} to {high:,.0f}"
    chart.text(MARGIN, 58, said)
    _terms(chart, 90, facts["terms_seconds"])
    top = _memory(chart, 190, facts)
    _changes(chart, top + 36, changes)
    return document(path, title, chart, facts)


def _terms(chart: Chart, top: float, terms: dict[str, float]) -> None:
    """A bar of the terms of the step, with their names below."""
    chart.text(MARGIN, top, "terms of the step", size=13, bold=True)
    chart.text(MARGIN, top + 26, "step")
    scale, colours = _ROOM / sum(terms.values()), dict(zip(terms, COLOURS, strict=True))
    tips = {name: f"{name} {TimeUnit.of(seconds).text(seconds)}" for name, seconds in terms.items()}
    chart.stack(_LEFT, top + 11, _BAR, [(terms[name] * scale, colours[name], tips[name]) for name in terms])
    chart.legend(MARGIN, top + 48, colours.items(), step=(116, 0))


def _memory(chart: Chart, top: float, facts: dict[str, Any]) -> float:
    needs = facts["memory"]
    chart.text(MARGIN, top, f"memory of each IPU: {needs['verdict']}", size=13, bold=True)
    limit = needs["limit_bytes"]
    scale = _ROOM / max(limit, *(ipu["high_bytes"] for ipu in needs["ipus"]))
    for ipu in needs["ipus"]:
        top += 26
        chart.text(MARGIN, top, f"IPU {ipu['ipu']}")
        parts = zip(ipu["parts_bytes"].items(), COLOURS, strict=False)
        bars = [(nbytes * scale, colour, f"{part} {memory(nbytes)}") for (part, nbytes), colour in parts]
        x, code = chart.stack(_LEFT, top - 15, _BAR, bars), ipu["high_bytes"] - ipu["bytes"]
        tip = f"code and what a compiler adds, at most {memory(code)}"
        chart.box(x, top - 15, code * scale, _BAR, "#ffffff", title=tip, hatched=True)
    end = _LEFT + limit * scale
    chart.line([(end, top - 26 * len(needs["ipus"])), (end, top + 10)], INK, dashed=True)
    return top


def _changes(chart: Chart, top: float, changes: list[dict[str, Any]]) -> None:
    chart.text(MARGIN, top, "throughput with other rates", size=13, bold=True)
    scale = (_ROOM - 140) / max(1.0, *(row["speedup"] for row in changes))
    for row in changes:
        top += 26
        chart.text(MARGIN, top, row["change"])
        chart.box(_LEFT, top - 15, row["speedup"] * scale, _BAR, COLOURS[0])
        said = f"{row['samples_per_second']:,.1f} /s, x {row['speedup']:.3f}"
        chart.text(_LEFT + row["speedup"] * scale + 6, top, said, size=11)
