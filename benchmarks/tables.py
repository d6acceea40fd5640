"""Write the results of benchmarks/collectives.py as Markdown: gcl, the fastest peer, and the ratio.

python benchmarks/collectives.py --json rows.json
python benchmarks/tables.py rows.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="+", help="files written by collectives.py --json")
    options = parser.parse_args()
    print("\n".join(tables([row for file in options.rows for row in json.loads(file.read_text())])))


if __name__ == "__main__":
    main()
