"""Experiment report: measured steps next to predictions from fewer instances, t, c, serial fractions, both laws."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcl.drawing.canvas import MARGIN
from gcl.drawing.units import TimeUnit
from ipu_emu.cli.output.chart import COLOURS, Axes, Chart, document
from ipu_emu.predict.laws import amdahl, gustafson

if TYPE_CHECKING:
    from ipu_emu.predict.experiment import Measurement, Measurements

_LINES = (("predicted", 0, False), ("ideal", 7, True), ("amdahl", 1, True), ("gustafson", 3, True))


def experiment_facts(runs: Measurements, kinds: tuple[str, ...]) -> dict[str, Any]:
    """All measurements and derived numbers."""
    fit = runs.fit(runs.fewest)
    return {
        "schema": "ipu-emu experiment 1",
        "program": shlex.join(runs.experiment.program),
        "idle": runs.idle,
        "cores": runs.cores,
        "rounds": runs.experiment.rounds,
        "instances_of_fit": runs.fewest,
        "micro_batch_seconds": fit.micro_batch,
        "constant_seconds": fit.constant,
        "degrees_of_freedom": fit.freedom,
        "residuals": list(fit.residuals),
        "slowdowns": {str(count): slowdown for count, slowdown in runs.slowdowns.items()},
        "measurements": [_point(runs, point) for point in runs.points],
        "curves": {kind: _curve(runs, kind) for kind in kinds},
        "warnings": [] if runs.idle else ["the machine was busy at the start (--force): times may be too long"],
    }


def _point(runs: Measurements, point: Measurement) -> dict[str, Any]:
    predicted = runs.predicted(point.instances, point.accumulation)
    return {
        "instances": point.instances,
        "accumulation": point.accumulation,
        "step_seconds": point.seconds,
        "predicted_step_seconds": predicted,
        "error": predicted / point.seconds - 1,
        "samples_per_second": runs.throughput(point.instances, point.accumulation, point.seconds),
    }


def _curve(runs: Measurements, kind: str) -> list[dict[str, Any]]:
    points = runs.line(strong=kind == "strong")
    first = points[0]
    constant = runs.constant_share(first.accumulation)
    base = runs.throughput(first.instances, first.accumulation, first.seconds)
    rows = []
    for point in points:
        ratio = point.instances / first.instances
        predicted = runs.predicted(point.instances, point.accumulation)
        rows.append(
            {
                "instances": point.instances,
                "accumulation": point.accumulation,
                "measured_samples_per_second": runs.throughput(point.instances, point.accumulation, point.seconds),
                "predicted_samples_per_second": runs.throughput(point.instances, point.accumulation, predicted),
                "ideal_samples_per_second": base * ratio,
                "amdahl_samples_per_second": base * amdahl(constant, ratio),
                "gustafson_samples_per_second": base * gustafson(constant, ratio),
                "serial_fraction": runs.serial_fraction(point, first),
            }
        )
    return rows


def experiment_text(facts: dict[str, Any]) -> str:
    """The tables of the report as text."""
    unit = TimeUnit.of(facts["micro_batch_seconds"] / 100)
    free = facts["degrees_of_freedom"]
    worst = max(map(abs, facts["residuals"]))
    said = "exact: 0 degrees of freedom, nothing is tested" if not free else f"residuals up to {worst:.1%}"
    lines = [
        f"{facts['program']}: {facts['rounds']} rounds on {facts['cores']} cores, least times",
        f"t = {unit.text(facts['micro_batch_seconds'])} per micro-batch, "
        f"c = {unit.text(facts['constant_seconds'])} per step, from {facts['instances_of_fit']} instance(s); {said}",
        *(
            f"{count} separate runs at a time slow each other by {slowdown:.2f}"
            for count, slowdown in facts["slowdowns"].items()
        ),
        "",
        "instances  accumulation      measured     predicted   error     samples/s",
    ]
    for row in facts["measurements"]:
        lines.append(
            f"{row['instances']:>9}  {row['accumulation']:>12}  {unit.text(row['step_seconds']):>12}  "
            f"{unit.text(row['predicted_step_seconds']):>12}  {row['error']:>+6.1%}  "
            f"{row['samples_per_second']:>12,.1f}"
        )
    for kind, rows in facts["curves"].items():
        lines += ["", f"{kind} scaling, samples/s"]
        lines.append("instances      measured     predicted         ideal        Amdahl     Gustafson  Karp-Flatt")
        for row in rows:
            keys = ("measured", "predicted", "ideal", "amdahl", "gustafson")
            numbers = "  ".join(f"{row[f'{key}_samples_per_second']:>12,.1f}" for key in keys)
            fraction = "-" if row["serial_fraction"] is None else f"{row['serial_fraction']:.3f}"
            lines.append(f"{row['instances']:>9}  {numbers}  {fraction:>10}")
    return "\n".join(lines + [f"Warning: {line}" for line in facts["warnings"]])


def picture(path: Path, facts: dict[str, Any]) -> bytes:
    """A plot for each curve: measured points, prediction, ideal line and both laws."""
    chart = Chart(1000, 80 + 420 * len(facts["curves"]))
    chart.text(MARGIN, 34, facts["program"], size=15, bold=True)
    for index, (kind, rows) in enumerate(facts["curves"].items()):
        names = [name for name, _, _ in _LINES] + ["measured"]
        values = [row[f"{name}_samples_per_second"] for row in rows for name in names]
        xs = [float(row["instances"]) for row in rows]
        limits = (min(xs), max(*xs, min(xs) + 1))
        axes = Axes(chart, 110, 90 + 420 * index, 700, 300, limits, (0.0, 1.1 * max(values)), logarithmic=False)
        axes.frame(f"{kind} scaling", "instances", "samples/s", xs)
        for name, colour, dashed in _LINES:
            axes.curve(xs, [row[f"{name}_samples_per_second"] for row in rows], COLOURS[colour], dashed=dashed)
        axes.points(xs, [row["measured_samples_per_second"] for row in rows], COLOURS[6])
        for line, (name, colour) in enumerate([*((name, colour) for name, colour, _ in _LINES), ("measured", 6)]):
            y = 100 + 420 * index + 22 * line
            chart.box(830, y, 12, 12, COLOURS[colour])
            chart.text(848, y + 10, {"amdahl": "Amdahl", "gustafson": "Gustafson"}.get(name, name), size=11)
    return document(path, facts["program"], chart, facts)
