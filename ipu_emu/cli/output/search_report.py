"""Search report: configurations as a table, as plain data, and as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gcl.drawing.canvas import MARGIN
from gcl.drawing.units import memory
from ipu_emu.cli.output.chart import COLOURS, Axes, Chart, document
from ipu_emu.predict.search import Configurations

_MOST_LINES = 60
_HEAD = "rank  IPUs  replicas  batch  accumulation  recompute  states         samples/s  global batch  memory"


def search_facts(title: str, configurations: Configurations, top: int) -> dict[str, Any]:
    """The first ``top`` rows, and the Pareto front of throughput and global batch."""
    front = configurations.pareto()
    return {
        "schema": "ipu-emu search 1",
        "job": title,
        "examined": configurations.examined,
        "fitting": len(configurations),
        "rows": configurations.rows(top),
        "pareto": [{name: value for name, value in row.items() if name != "rank"} for row in front.rows(len(front))],
    }


def sweep_facts(title: str, configurations: Configurations) -> dict[str, Any]:
    """All rows in the order of the sweep."""
    rows = configurations.rows(len(configurations))
    return {
        "schema": "ipu-emu sweep 1",
        "job": title,
        "rows": [{name: value for name, value in row.items() if name != "rank"} for row in rows],
    }


def search_text(facts: dict[str, Any]) -> str:
    """The best rows, ties marked, then the Pareto front."""
    lines = [f"{facts['job']}: {facts['examined']:,} configurations, {facts['fitting']:,} may fit", "", _HEAD]
    ranks = [row["rank"] for row in facts["rows"]]
    for row in facts["rows"]:
        tie = "=" if ranks.count(row["rank"]) > 1 else " "
        lines.append(f"{tie}{row['rank']:>3}  {_row(row)}")
    if len(facts["pareto"]) > 1:
        lines += ["", "the fastest for at most each global batch", f"      {_HEAD[6:]}"]
        front = facts["pareto"]
        shown = [front[index] for index in np.unique(np.linspace(0, len(front) - 1, 20).astype(int))]
        lines += [f"      {_row(row)}" for row in shown]
    lines += ["", "= ties: the difference is within the error of predictions"]
    return "\n".join(lines)


def sweep_text(facts: dict[str, Any]) -> str:
    """The rows in order, up to a readable number."""
    rows = facts["rows"]
    lines = [facts["job"], "", _HEAD[6:]] + [_row(row) for row in rows[:_MOST_LINES]]
    if len(rows) > _MOST_LINES:
        lines.append(f"... {len(rows) - _MOST_LINES:,} more rows: use --format json")
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    states = " ".join(name for name, is_on in (("sharded", row["shared"]), ("off-chip", row["off_chip"])) if is_on)
    return (
        f"{row['ipus']:>4}  {row['replicas']:>8}  {row['batch']:>5}  {row['accumulation']:>12}  "
        f"{'yes' if row['recompute'] else 'no':>9}  {states:<16} {row['samples_per_second']:>11,.0f}  "
        f"{row['global_batch_samples']:>12,.0f}  {row['verdict']}, {memory(row['low_bytes'])} and more"
    )


# ---------------------------------------------------------------- pictures


def picture(path: Path, facts: dict[str, Any], axes: dict[str, list[int]] | None = None) -> bytes:
    """The Pareto front of a search; for a sweep, a heat map over two ``axes`` or a curve over one."""
    if axes is None:
        chart = _front(facts)
    elif len(axes) >= 2:
        chart = _heat_map(facts, axes)
    else:
        chart = _curve(facts, axes)
    return document(path, facts["job"], chart, facts)


def _plane(facts: dict[str, Any], rows: list[dict[str, Any]], across: str, name: str) -> tuple[Chart, Axes]:
    chart = Chart(900, 480)
    chart.text(MARGIN, 36, facts["job"], size=15, bold=True)
    xs, ys = ([row[key] for row in rows] for key in (across, "samples_per_second"))
    axes = Axes(chart, 110, 90, 740, 310, (min(xs), max(*xs, min(xs) * 1.01)), (min(ys) * 0.9, max(ys) * 1.1))
    axes.frame("throughput", name, "samples/s", sorted({min(xs), max(xs), *xs[:: max(1, len(xs) // 8)]}))
    return chart, axes


def _front(facts: dict[str, Any]) -> Chart:
    rows = facts["pareto"]
    chart, axes = _plane(facts, rows, "global_batch_samples", "global batch")
    xs, ys = ([row[key] for row in rows] for key in ("global_batch_samples", "samples_per_second"))
    axes.curve(xs, ys, COLOURS[0])
    axes.points(xs, ys, COLOURS[0])
    return chart


def _curve(facts: dict[str, Any], axes_: dict[str, list[int]]) -> Chart:
    (name,) = list(axes_) or ["replicas"]
    rows = facts["rows"]
    chart, axes = _plane(facts, rows, name, name)
    axes.curve([row[name] for row in rows], [row["samples_per_second"] for row in rows], COLOURS[0])
    for row in rows:
        colour = COLOURS[0] if row["verdict"] != "does not fit" else COLOURS[1]
        axes.points([row[name]], [row["samples_per_second"]], colour, f"{row['verdict']}: {row[name]}")
    return chart


def _heat_map(facts: dict[str, Any], axes: dict[str, list[int]]) -> Chart:
    """The best of all other axes in each cell; hatched where nothing fits."""
    (across, xs), (down, ys) = list(axes.items())[:2]
    width, height = max(14.0, min(70.0, 780 / len(xs))), max(14.0, min(40.0, 560 / len(ys)))
    chart = Chart(180 + width * len(xs), 130 + height * len(ys))
    chart.text(MARGIN, 32, facts["job"], size=14, bold=True)
    chart.text(MARGIN, 54, f"samples/s by {across} (across) and {down} (down); hatched: does not fit", size=11)
    most = max(row["samples_per_second"] for row in facts["rows"])
    best: dict[tuple[int, int], dict[str, Any]] = {}
    for row in facts["rows"]:
        place = (xs.index(int(row[across])), ys.index(int(row[down])))
        key = (row["verdict"] != "does not fit", row["samples_per_second"])
        known = best.get(place)
        if known is None or key > (known["verdict"] != "does not fit", known["samples_per_second"]):
            best[place] = row
    for (column, line), row in best.items():
        share = row["samples_per_second"] / most
        fill = "#{:02x}{:02x}{:02x}".format(*(round(255 - share * (255 - low)) for low in (21, 101, 192)))
        tip = f"{across} {row[across]}, {down} {row[down]}: {row['samples_per_second']:,.0f}, {row['verdict']}"
        x, y = 110 + width * column, 80 + height * line
        chart.box(x, y, width, height, fill, title=tip, hatched=row["verdict"] == "does not fit")
        if width >= 40:
            dark = "#ffffff" if share > 0.6 else "#1f2933"
            said = f"{row['samples_per_second']:,.0f}"
            chart.text(x + width / 2, y + height / 2 + 4, said, size=9, anchor="middle", colour=dark)
    for column, value in enumerate(xs):
        if column % max(1, len(xs) // 20) == 0:
            chart.text(110 + width * (column + 0.5), 96 + height * len(ys), f"{value}", size=10, anchor="middle")
    for line, value in enumerate(ys):
        if line % max(1, len(ys) // 30) == 0:
            chart.text(104, 84 + height * (line + 0.5), f"{value}", size=10, anchor="end")
    return chart
