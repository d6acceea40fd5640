"""Write the results of benchmarks/collectives.py and benchmarks/models.py as Markdown tables, also into a page.

python benchmarks/collectives.py --json rows.json
python benchmarks/tables.py rows.json

python benchmarks/models.py --json models.json
python benchmarks/tables.py models.json --into docs/performance-training.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any


def time(microseconds: float) -> str:
    """Three figures, with the unit in which they are easiest to read."""
    return f"{microseconds:.3g} us" if microseconds < 1000 else f"{microseconds / 1000:.3g} ms"


def tables(rows: list[dict[str, Any]]) -> list[str]:
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
START, END = "<!-- models -->", "<!-- end of models -->"


def model_tables(rows: list[dict[str, Any]]) -> list[str]:
    """A table for each of ``MODELS``: milliseconds of each contender, and peer / ours in bold."""
    found = []
    for end, heading in MODELS.items():
        lines = [row for row in rows if row["case"].endswith(end)]
        peers = list(dict.fromkeys(name for row in lines for name in [*row["peers"], *row["failed"]]))
        if lines:
            found.append(_model_table(heading, lines, peers))
    return found


def _model_table(heading: str, rows: list[dict[str, Any]], peers: list[str]) -> str:
    def cell(row: dict[str, Any], peer: str) -> str:
        if peer not in row["peers"]:
            return "failed" if peer in row["failed"] else ""
        return f"{row['peers'][peer]:.3g}, **{row['peers'][peer] / row['ours']:.2f}**"

    def mean(peer: str) -> str:
        ratios = [row["peers"][peer] / row["ours"] for row in rows if peer in row["peers"]]
        return f"**{geometric_mean(ratios):.2f}** of {len(ratios)}" if ratios else ""

    head = f"| network | ours (ms) | {' | '.join(peers)} | load |"
    body = [
        f"| {row['case'].partition(',')[0]} | {row['ours']:.3g} | {' | '.join(cell(row, peer) for peer in peers)} "
        f"| {row['load']:.0f} |"
        for row in rows
    ]
    last = f"| geometric mean | | {' | '.join(map(mean, peers))} | |"
    return "\n".join([f"### {heading}", "", head, "|" + "---|" * (3 + len(peers)), *body, last, ""])


def written_into(page: str, tables: list[str]) -> str:
    """``page`` with ``tables`` between the two marks."""
    before, _, rest = page.partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"the page has no part between {START} and {END}; add these two lines to it")
    return f"{before}{START}\n\n" + "\n".join(tables) + f"\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="+", help="files written with --json")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="replace the tables of networks in this page")
    options = parser.parse_args()
    rows = [row for file in options.rows for row in json.loads(file.read_text())]
    networks = [row for row in rows if row["case"].endswith(tuple(MODELS))]
    made = model_tables(networks) + tables([row for row in rows if row not in networks])
    if options.into is None:
        print("\n".join(made))
    else:
        options.into.write_text(written_into(options.into.read_text(), made))


if __name__ == "__main__":
    main()
