"""Prediction pictures: the terms of a step, the memory of each IPU, and the effect of other rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gcl.drawing.canvas import INK, MARGIN
from gcl.drawing.units import TimeUnit, memory
from ipu_emu.cli.output.chart import COLOURS, Chart, document

_WIDTH, _LABEL, _BAR = 1000, 120, 22


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
    stacked(chart, 90, [("step", facts["terms_seconds"])])
    top = _memory(chart, 190, facts)
    _changes(chart, top + 36, changes)
    return document(path, title, chart, facts)


def stacked(chart: Chart, top: float, rows: list[tuple[str, dict[str, float]]]) -> None:
    """A bar of the terms of each row, with the names of the terms below."""
    chart.text(MARGIN, top, "terms of the step", size=13, bold=True)
    longest = max(sum(terms.values()) for _, terms in rows)
    scale = (_WIDTH - 2 * MARGIN - _LABEL) / longest
    names = list(rows[0][1])
    for name, terms in rows:
        top += 26
        chart.text(MARGIN, top, name)
        x = float(MARGIN + _LABEL)
        for term, seconds in terms.items():
            tip = f"{term} {TimeUnit.of(seconds).text(seconds)}"
            chart.box(x, top - 15, seconds * scale, _BAR, COLOURS[names.index(term)], title=tip)
            x += seconds * scale
    for index, name in enumerate(names):
        chart.box(MARGIN + 116 * index, top + 22, 11, 11, COLOURS[index])
        chart.text(MARGIN + 116 * index + 16, top + 32, name, size=11)


def _memory(chart: Chart, top: float, facts: dict[str, Any]) -> float:
    needs = facts["memory"]
    chart.text(MARGIN, top, f"memory of each IPU: {needs['verdict']}", size=13, bold=True)
    limit = needs["limit_bytes"]
    scale = (_WIDTH - 2 * MARGIN - _LABEL) / max(limit, *(ipu["high_bytes"] for ipu in needs["ipus"]))
    for ipu in needs["ipus"]:
        top += 26
        chart.text(MARGIN, top, f"IPU {ipu['ipu']}")
        x = float(MARGIN + _LABEL)
        for index, (part, nbytes) in enumerate(ipu["parts_bytes"].items()):
            chart.box(x, top - 15, nbytes * scale, _BAR, COLOURS[index], title=f"{part} {memory(nbytes)}")
            x += nbytes * scale
        code = ipu["high_bytes"] - ipu["bytes"]
        chart.box(
            x,
            top - 15,
            code * scale,
            _BAR,
            "#ffffff",
            title=f"code and what a compiler adds, at most {memory(code)}",
            hatched=True,
        )
    end = MARGIN + _LABEL + limit * scale
    chart.line([(end, top - 26 * len(needs["ipus"])), (end, top + 10)], INK, dashed=True)
    return top


def _changes(chart: Chart, top: float, changes: list[dict[str, Any]]) -> None:
    chart.text(MARGIN, top, "throughput with other rates", size=13, bold=True)
    scale = (_WIDTH - 2 * MARGIN - _LABEL - 140) / max(1.0, *(row["speedup"] for row in changes))
    for row in changes:
        top += 26
        chart.text(MARGIN, top, row["change"])
        chart.box(MARGIN + _LABEL, top - 15, row["speedup"] * scale, _BAR, COLOURS[0])
        said = f"{row['samples_per_second']:,.1f} /s, x {row['speedup']:.3f}"
        chart.text(MARGIN + _LABEL + row["speedup"] * scale + 6, top, said, size=11)
