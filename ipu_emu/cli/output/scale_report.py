"""Scale report: predictions and measurements over a number of IPUs or instances, as text, data and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gcl.drawing.canvas import FAINT, MARGIN
from gcl.drawing.units import TimeUnit
from ipu_emu.cli.output.chart import COLOURS, Axes, Chart, document
from ipu_emu.predict.calibration.rows import Row
from ipu_emu.predict.prediction import Prediction
from ipu_emu.predict.scaling import ScalePoint

_LINES = (("ideal", 7), ("Amdahl", 1), ("Gustafson", 3))


def scale_facts(title: str, kind: str, points: list[ScalePoint], measured: list[dict[str, Any]]) -> dict[str, Any]:
    """All points, with the unit in every key."""
    return {
        "schema": "ipu-emu scale 1",
        "job": title,
        "scaling": kind,
        "axis": "IPUs",
        "points": [
            {
                "count": point.ipus,
                "samples_per_second": point.prediction.throughput,
                "samples_per_second_90": list(point.prediction.interval),
                "step_seconds": point.prediction.step,
                "terms_seconds": point.prediction.terms,
                "global_batch_samples": point.prediction.job.global_batch,
                "accumulation": point.prediction.job.accumulation,
                "ideal_samples_per_second": point.ideal,
                "amdahl_samples_per_second": point.amdahl,
                "gustafson_samples_per_second": point.gustafson,
                "share_of_ideal": point.efficiency,
                "limiting": point.prediction.limiting,
            }
            for point in points
        ],
        "measured": measured,
        "warnings": points[-1].prediction.warnings,
    }


def measured_facts(row: Row, predicted: Prediction) -> dict[str, Any]:
    """A measured row with its prediction."""
    measured = row.job.global_batch / row.seconds
    low, high = predicted.interval
    return {
        "name": row.name,
        "count": row.job.total_ipus,
        "measured_samples_per_second": measured,
        "predicted_samples_per_second": predicted.throughput,
        "error": predicted.throughput / measured - 1,
        "within_90": low <= measured <= high,
    }


def scale_text(facts: dict[str, Any]) -> str:
    """A line for each size, then the measurements."""
    head = (
        f"{facts['axis']:>9}  {'samples/s':>13}  {'90 %':>23}  {'step':>10}  {'global batch':>12}  of ideal   "
        f"{'Amdahl':>13}  {'Gustafson':>13}  limited by"
    )
    lines = [f"{facts['job']}, {facts['scaling']} scaling", "", head]
    for point in facts["points"]:
        step = point["step_seconds"]
        low, high = point["samples_per_second_90"]
        lines.append(
            f"{point['count']:>9,}  {point['samples_per_second']:>13,.0f}  {f'{low:,.0f} to {high:,.0f}':>23}  "
            f"{TimeUnit.of(step).text(step):>10}  {point['global_batch_samples']:>12,.0f}  "
            f"{point['share_of_ideal']:>8.1%}   {point['amdahl_samples_per_second']:>13,.0f}  "
            f"{point['gustafson_samples_per_second']:>13,.0f}  {point['limiting']}"
        )
    if facts["measured"]:
        lines += ["", "measured"]
    for row in facts["measured"]:
        mark = "" if row["within_90"] else "  outside the interval"
        lines.append(
            f"{row['count']:>9,}  {row['measured_samples_per_second']:>13,.0f}  predicted "
            f"{row['predicted_samples_per_second']:>13,.0f}  {row['error']:+7.1%}  {row['name']}{mark}"
        )
    return "\n".join(lines + [f"Warning: {line}" for line in facts["warnings"]])


def picture(path: Path, facts: dict[str, Any]) -> bytes:
    """Throughput with its interval, measured points, the ideal line and both laws; then the terms of each step."""
    points = facts["points"]
    chart = Chart(1000, 560 + 28 * len(points))
    title = f"{facts['job']}, {facts['scaling']} scaling"
    chart.text(MARGIN, 34, title, size=15, bold=True)
    throughput_curves(chart, 90, facts)
    _terms(chart, 510, points)
    return document(path, title, chart, facts)


def throughput_curves(chart: Chart, top: float, facts: dict[str, Any]) -> None:
    """Throughput with its interval, measured points, the ideal line and both laws."""
    points, measured = facts["points"], facts["measured"]
    xs = [float(point["count"]) for point in points]
    keys = ("samples_per_second", "ideal_samples_per_second", "gustafson_samples_per_second")
    values = [point[key] for point in points for key in keys]
    values += [end for point in points for end in point["samples_per_second_90"]]
    values += [row["measured_samples_per_second"] for row in measured]
    least = min(values + [point["amdahl_samples_per_second"] for point in points])
    counts = xs + [float(row["count"]) for row in measured]
    axes = Axes(chart, 110, top, 700, 340, (min(counts), max(counts)), (least * 0.9, max(values) * 1.1))
    axes.frame("throughput", facts["axis"], "samples/s", xs[:: max(1, len(xs) // 8)])
    low, high = ([point["samples_per_second_90"][end] for point in points] for end in (0, 1))
    axes.band(xs, low, high, FAINT)
    for name, colour in _LINES:
        ys = [point[f"{name.lower()}_samples_per_second"] for point in points]
        axes.curve(xs, ys, COLOURS[colour], dashed=True)
    axes.curve(xs, [point["samples_per_second"] for point in points], COLOURS[0])
    for row in measured:
        axes.points([row["count"]], [row["measured_samples_per_second"]], COLOURS[6], row["name"])
    names = (("predicted", 0), *_LINES, ("measured", 6))
    chart.legend(830, top + 10, [(name, COLOURS[colour]) for name, colour in names], step=(0, 22))
    chart.text(830, top + 132, "grey: 90 % interval", size=11)


def _terms(chart: Chart, top: float, points: list[dict[str, Any]]) -> None:
    """The fractions of the terms at every size."""
    chart.text(MARGIN, top - 8, "shares of the step", size=13, bold=True)
    colours = dict(zip(points[0]["terms_seconds"], COLOURS, strict=False))
    for line, point in enumerate(points):
        y, scale = top + 6 + 28 * line, 700 / point["step_seconds"]
        chart.text(100, y + 14, f"{point['count']:,}", size=11, anchor="end")
        terms = point["terms_seconds"].items()
        chart.stack(110, y, 20, [(scale * time, colours[name], f"{name} {time:.3g} s") for name, time in terms])
    chart.legend(110, top + 14 + 28 * len(points), colours.items(), step=(100, 0))
