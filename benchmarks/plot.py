"""Draw the results of benchmarks/collectives.py: time per call against size, for gcl and every peer.

python benchmarks/collectives.py --json rows.json
python benchmarks/plot.py rows.json docs/images/collectives.svg
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from support.extras import need

need("matplotlib", extra="plots")

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

_CASE = re.compile(r"(?P<what>.+) (?P<dtype>\w+) P=(?P<processes>\d+) (?P<size>\d+) (?P<unit>KiB|MiB)")
#: One picture each, left to right; one row for each number of processes.
_COLUMNS = [
    ("all-reduce", "float32"),
    ("all-reduce", "float16"),
    ("all-reduce private", "float32"),
    ("reduce-scatter", "float32"),
    ("all-gather", "float32"),
]
_STYLES = {
    "ours": ("#d62728", "o-"),
    "mpich": ("#1f77b4", "s--"),
    "mpich in place": ("#1f77b4", "s:"),
    "openmpi": ("#2ca02c", "^--"),
    "openmpi in place": ("#2ca02c", "^:"),
    "gloo": ("#7f7f7f", "x--"),
}

Series = dict[str, list[tuple[int, float]]]


def series(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int], Series]:
    """(collective, dtype, processes) -> contender -> [(bytes, microseconds), ...]."""
    by_case: dict[tuple[str, str, int], Series] = {}
    for row in rows:
        match = _CASE.fullmatch(row["case"])
        if match is None:
            raise SystemExit(f"{row['case']!r} is no case of benchmarks/collectives.py; give a file that it wrote")
        nbytes = int(match["size"]) << {"KiB": 10, "MiB": 20}[match["unit"]]
        lines = by_case.setdefault((match["what"], match["dtype"], int(match["processes"])), {})
        for name, microseconds in {"ours": row["ours"], **row["peers"]}.items():
            lines.setdefault(name, []).append((nbytes, microseconds))
    return by_case


def draw(by_case: dict[tuple[str, str, int], Series]) -> plt.Figure:
    """A grid of pictures with logarithmic axes."""
    counts = sorted({processes for _, _, processes in by_case})
    columns = [column for column in _COLUMNS if any((*column, processes) in by_case for processes in counts)]
    size = (3.4 * len(columns), 2.9 * len(counts))
    figure, grid = plt.subplots(len(counts), len(columns), figsize=size, squeeze=False, layout="constrained")
    for row, processes in zip(grid, counts, strict=True):
        for axes, (what, dtype) in zip(row, columns, strict=True):
            if (what, dtype, processes) not in by_case:
                axes.set_axis_off()
                continue
            for name, points in by_case.get((what, dtype, processes), {}).items():
                color, style = _STYLES[name]
                width = 2.0 if name == "ours" else 1.0
                axes.loglog(*zip(*points, strict=True), style, color=color, label=name, lw=width, ms=3)
            axes.set_title(f"{what}, {dtype}, P = {processes}", fontsize=9)
            axes.set_xticks([1 << power for power in (10, 14, 18, 22, 26)], ["1K", "16K", "256K", "4M", "64M"])
            axes.tick_params(labelsize=7, which="both")
            axes.minorticks_off()
            axes.grid(alpha=0.3)
    for axes in grid[:, 0]:
        axes.set_ylabel("microseconds per call", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("bytes", fontsize=8)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=6, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="+", help="files written by collectives.py --json")
    parser.add_argument("picture", type=Path, help="the SVG or PNG file to write")
    options = parser.parse_args()
    rows = [row for file in options.rows for row in json.loads(file.read_text())]
    draw(series([row for row in rows if not row["case"].startswith("limit")])).savefig(options.picture)


if __name__ == "__main__":
    main()
