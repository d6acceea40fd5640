"""Experiment page: the pictures of an experiment, alone or on one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from gcl.drawing.canvas import INK, MARGIN
from ipu_emu.cli.output.chart import COLOURS, Axes, Chart, document, html_page
from ipu_emu.cli.output.experiment_report import advices, experiment_text, law_lines, limit_line
from ipu_emu.cli.output.scale_report import throughput_curves
from ipu_emu.predict.experiment.step_use import PARTS

_LAWS = (("ideal", 7), ("Amdahl", 1), ("Gustafson", 3), ("GA x T_MB + T_AR", 2), ("universal", 0))
_WIDTH, _LEFT, _PLOT = 1000, 110, 640


def experiment_picture(path: Path, facts: Mapping[str, Any]) -> bytes:
    """An SVG or PNG file."""
    return document(path, facts["program"], experiment_chart(facts), facts)


def experiment_chart(facts: Mapping[str, Any]) -> Chart:
    """Speed-ups with the laws, then the parts of a step of each configuration, then the Pod."""
    rows, pod = facts["configurations"], facts["pod"]
    chart = Chart(_WIDTH, 570 + 28 * len(rows) + (430 if pod else 0))
    chart.text(MARGIN, 34, f"{facts['program']}, {facts['scaling']} scaling", size=15, bold=True)
    _speedups(chart, facts)
    _parts(chart, 500, rows)
    if pod:
        throughput_curves(chart, 640 + 28 * len(rows), pod)
    return chart


def _speedups(chart: Chart, facts: Mapping[str, Any]) -> None:
    """Measured speed-ups with intervals; laws are dashed where nothing was measured."""
    rows, laws = facts["configurations"], facts["laws"]
    curves, measured = laws["curves"], laws["measured_up_to"]
    base = rows[0]["replicas"]
    counts, ends = [row["replicas"] / base for row in rows], (1.0, curves[-1]["count"])
    top = 1.1 * max(2.0, *(row["speedup_90"][1] for row in rows), ends[1] * 0.75)
    axes = Axes(chart, _LEFT, 90, _PLOT, 320, ends, (0.0, top), logarithmic=False)
    axes.frame("speed-up (samples per second)", f"replicas / {base}", "x", sorted({*counts, ends[1]}))
    for name, colour in _LAWS:
        points = [(point["count"], point[name]) for point in curves if point[name] <= top]
        inside = [point for point in points if point[0] <= measured]
        for part, dashed in ((inside, False), (points[max(len(inside) - 1, 0) :], True)):
            if len(part) > 1:
                xs, ys = zip(*part, strict=True)
                axes.curve(xs, ys, COLOURS[colour], dashed=dashed)
    for index, (x, row) in enumerate(zip(counts, rows, strict=True)):
        chart.line([axes.at(x, end) for end in row["speedup_90"]], INK, width=1)
        axes.points([x], [row["speedup"]], COLOURS[6], f"{row['name']}: {row['speedup']:.2f}x")
        across, down = axes.at(x, row["speedup"])
        chart.text(across + 7, down - 2 + 12 * (index % 2), row["name"], size=10)
    names = [(name, COLOURS[colour]) for name, colour in (*_LAWS, ("measured, 90 %", 6))]
    chart.legend(780, 100, names, step=(0, 22))
    chart.text(780, 110 + 22 * (len(_LAWS) + 1), "dashed: beyond what was measured", size=11)


def _parts(chart: Chart, top: float, rows: list[dict[str, Any]]) -> None:
    """A bar of the parts of each configuration's step, in seconds of the longest."""
    chart.text(MARGIN, top - 8, "where the time of a step goes", size=13, bold=True)
    longest = max(row["step_seconds"] for row in rows)
    colours = dict(zip(PARTS, COLOURS, strict=False))
    for line, row in enumerate(rows):
        y, scale = top + 6 + 28 * line, _PLOT / longest
        chart.text(_LEFT - 10, y + 14, row["name"], size=11, anchor="end")
        parts = row["parts_seconds"]
        known = parts if sum(parts.values()) else {PARTS[-1]: row["step_seconds"]}
        bars = [(scale * seconds, colours[name], f"{name} {seconds:.4g} s") for name, seconds in known.items()]
        x = chart.stack(_LEFT, y, 20, bars)
        chart.text(x + 8, y + 14, f"{row['step_seconds']:.4g} s, efficiency {row['efficiency']:.0%}", size=11)
    chart.legend(_LEFT, top + 14 + 28 * len(rows), colours.items(), step=(110, 0))


def experiment_page(facts: Mapping[str, Any]) -> bytes:
    """The page: limits, pictures, what to try, all numbers as text and JSON."""
    style = files("ipu_emu.cli.output.run_report").joinpath("report.css").read_text(encoding="utf-8")
    title = f"{facts['program']}: scaling experiment"
    limited = "".join(
        f'<p class="{"finding" if row["limits"] else "fine"}">{escape(limit_line(row))}</p>'
        for row in facts["configurations"]
    )
    tries = "".join(f"<li>{escape(advice)}</li>" for advice in advices(facts))
    warned = "".join(f'<p class="finding">{escape(line)}</p>' for line in facts["warnings"])
    laws = "".join(f"<p>{escape(line)}</p>" for line in law_lines(facts["laws"]))
    body = (
        f"<header><h1>{escape(title)}</h1></header><section>{warned}<h2>Limits</h2>{limited}"
        f"<h2>What to try</h2><ul>{tries}</ul>"
        f'<h2>Speed-up and time</h2><div class="scroll">{experiment_chart(facts).svg()}</div>{laws}'
        f"<h2>Numbers</h2><pre>{escape(experiment_text(facts))}</pre></section>"
    )
    return html_page(title, style, body, facts)
