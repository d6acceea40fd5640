"""Write measured rows as Markdown tables: all tables of docs/performance*.md and docs/torch-backend.md
that have a file of rows.

python benchmarks/tables.py                                     # every page, from docs/measurements
python benchmarks/models.py --json docs/measurements/models.json && python benchmarks/tables.py
python benchmarks/tables.py rows.json                           # prints the tables of these rows

A page marks the place of a table: ``<!-- rows of models.json -->`` before it and ``<!-- end of rows -->`` after it.
The load of a row is the average number of processes that wanted a core in the minute before it was measured.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from statistics import geometric_mean
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
MEASUREMENTS = DOCS / "measurements"
#: A table in a page, with the name of its file of rows.
_PLACE = re.compile(r"(<!-- rows of ([\w.-]+) -->\n).*?(<!-- end of rows -->)", re.DOTALL)
_COLLECTIVE = re.compile(r" P=\d+ ")


def time(microseconds: float) -> str:
    """Three figures, with the unit in which they are easiest to read."""
    return f"{microseconds:.3g} us" if microseconds < 1000 else f"{microseconds / 1000:.3g} ms"


def figures(value: float) -> str:
    """Three figures, or all before the point."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


#: Seconds of each unit of time.
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def quantity(value: float, unit: str) -> str:
    """Three figures with the unit; a time has the unit in which it is easiest to read."""
    if unit not in _TIMES:
        return f"{figures(value)} {unit}"
    seconds = value * _TIMES[unit]
    best = next((name for name, size in _TIMES.items() if seconds >= size), "us")
    return f"{figures(seconds / _TIMES[best])} {best}"


def collective_tables(rows: list[dict[str, Any]]) -> list[str]:
    """One table for each collective and dtype: a line per size, three columns per number of processes."""
    cells: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        what, processes, size = row["case"].rsplit(" ", 3)[0], *row["case"].split(" P=")[1].split(" ", 1)
        name = min(row["peers"], key=row["peers"].get)
        cell = f"{time(row['ours'])} | {time(row['peers'][name])} ({name}) | **{row['ratio']:.2f}**"
        cells.setdefault(what, {}).setdefault(size, {})[processes] = cell
    return [_table(what, lines) for what, lines in cells.items()]


def _table(what: str, lines: dict[str, dict[str, str]]) -> str:
    counts = sorted({count for line in lines.values() for count in line}, key=int)
    head = "| size | " + " | ".join(f"P = {count}: ours | fastest peer | ratio" for count in counts) + " |"
    rule = "|" + "---|" * (1 + 3 * len(counts))
    body = [f"| {size} | " + " | ".join(line.get(c, "| |") for c in counts) + " |" for size, line in lines.items()]
    return "\n".join([f"### {what}", "", head, rule, *body, ""])


#: Headings of the tables of benchmarks/models.py, by the end of a case's name.
MODELS = {
    "training, 1 process": "Training, one process",
    "training, 2 processes": "Training, two processes",
    "inference, 1 process": "Inference, one process",
}


def model_tables(rows: list[dict[str, Any]]) -> list[str]:
    """A table for each of ``MODELS``: milliseconds of each contender, and peer / ours in bold."""
    result = []
    for end, heading in MODELS.items():
        lines = [row for row in rows if row["case"].endswith(end)]
        peers = list(dict.fromkeys(name for row in lines for name in [*row["peers"], *row.get("failed", [])]))
        if lines:
            result.append(_model_table(heading, lines, peers))
    return result


def _model_table(heading: str, rows: list[dict[str, Any]], peers: list[str]) -> str:
    def cell(row: dict[str, Any], peer: str) -> str:
        if peer not in row["peers"]:
            return "failed" if peer in row.get("failed", []) else ""
        return f"{figures(row['peers'][peer])}, **{row['peers'][peer] / row['ours']:.2f}**"

    def mean(peer: str) -> str:
        ratios = [row["peers"][peer] / row["ours"] for row in rows if peer in row["peers"]]
        return f"**{geometric_mean(ratios):.2f}** of {len(ratios)}" if ratios else ""

    head = f"| network | ours (ms) | {' | '.join(peers)} | load |"
    body = [
        f"| {row['case'].partition(',')[0]} | {figures(row['ours'])} "
        f"| {' | '.join(cell(row, peer) for peer in peers)} | {row['load']:.0f} |"
        for row in rows
    ]
    last = f"| geometric mean | | {' | '.join(map(mean, peers))} | |"
    return "\n".join([f"### {heading}", "", head, "|" + "---|" * (3 + len(peers)), *body, last, ""])


def plain_table(rows: list[dict[str, Any]]) -> list[str]:
    """One table with a line for each row; its ratio is that to the fastest peer, or to the limit."""
    if not rows:
        return []
    peers = list(dict.fromkeys(name for row in rows for name in [*row["peers"], *row.get("failed", [])]))
    loads = any("load" in row for row in rows)
    head = ["case", "ours", *peers, "ratio", *(["load"] if loads else [])]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        load = [f"{row['load']:.0f}" if "load" in row else ""] if loads else []
        ratio = "" if row.get("failed") and not row["peers"] else f"**{row['ratio']:.2f}**"
        cells = [row["case"], quantity(row["ours"], row["unit"]), *(_cell(row, name) for name in peers), ratio, *load]
        lines.append(f"| {' | '.join(cells)} |")
    return ["\n".join([*lines, ""])]


def _cell(row: dict[str, Any], peer: str) -> str:
    if peer in row["peers"]:
        return quantity(row["peers"][peer], row["unit"])
    return "failed" if peer in row.get("failed", []) else ""


def tables(rows: list[dict[str, Any]]) -> list[str]:
    """The tables of rows of any benchmark: networks, collectives, and all others in one."""
    networks = [row for row in rows if row["case"].endswith(tuple(MODELS))]
    collectives = [row for row in rows if _COLLECTIVE.search(row["case"])]
    others = [row for row in rows if row not in networks and row not in collectives]
    return [*model_tables(networks), *collective_tables(collectives), *plain_table(others)]


def rows_in(file: Path) -> list[dict[str, Any]]:
    """The rows that a benchmark has written with --json."""
    try:
        rows: list[dict[str, Any]] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(
            f"tables.py: cannot read rows from {file}: {error}; write it with --json of a benchmark"
        ) from error
    return rows


def with_tables(page: str, folder: Path = MEASUREMENTS) -> str:
    """``page`` with all of its tables made from the rows in ``folder``."""
    return _PLACE.sub(
        lambda match: f"{match[1]}\n" + "\n".join(tables(rows_in(folder / match[2]))) + f"\n{match[3]}", page
    )


def pages() -> list[Path]:
    """The pages that show measurements."""
    return [*sorted(DOCS.glob("performance*.md")), DOCS / "torch-backend.md"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="*", help="files written with --json, whose tables are printed")
    options = parser.parse_args()
    if options.rows:
        print("\n".join(tables([row for file in options.rows for row in rows_in(file)])))
        return
    for page in pages():
        page.write_text(with_tables(page.read_text()))


if __name__ == "__main__":
    main()
