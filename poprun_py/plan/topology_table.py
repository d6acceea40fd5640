"""Topology table: the table of hosts, IPU-Link domains, instances and replicas that --print-topology shows.

 ===========================
|      poprun topology      |
|===========================|
| hosts     |   localhost   |
|-----------|---------------|
| ILDs      |       0       |
|-----------|---------------|
| instances |   0   |   1   |
|-----------|---------------|
| replicas  | 0 | 1 | 2 | 3 |
 ---------------------------
"""

from __future__ import annotations

from collections.abc import Sequence

_TITLE = "poprun topology"
_LABEL_WIDTH = 11

#: A label and the number of replicas it spans.
Cell = tuple[str, int]


def topology_table(*, hosts: Sequence[Cell], ilds: Sequence[Cell], instances: Sequence[Cell]) -> str:
    """Draw the table; the cells of each row span all replicas. Lines end in newlines."""
    replicas = sum(span for _, span in instances)
    width = _replica_width(replicas, [*hosts, *ilds, *instances])
    rows = [
        _row(label, "|".join(_centred(text, span * (width + 1) - 1) for text, span in cells))
        for label, cells in (("hosts", hosts), ("ILDs", ilds), ("instances", instances))
    ]
    rows.append(_row("replicas", "|".join(f" {replica}".ljust(width) for replica in range(replicas))))
    inner = len(rows[0]) - 2
    rule = f"\n|{'-' * _LABEL_WIDTH}|{'-' * (inner - _LABEL_WIDTH - 1)}|\n"
    title = f" {'=' * inner}\n|{_centred(_TITLE, inner)}|\n|{'=' * inner}|\n"
    return title + rule.join(rows) + f"\n {'-' * inner}\n"


def _replica_width(replicas: int, cells: Sequence[Cell]) -> int:
    """The width that fits the largest index, and each label above in its ``span`` cells and the bars between them."""
    index = len(str(replicas - 1)) + 2
    return max([index, *(-(-(len(text) + 3) // span) - 1 for text, span in cells)])


def _row(label: str, cells: str) -> str:
    return f"| {label.ljust(_LABEL_WIDTH - 1)}|{cells}|"


def _centred(text: str, width: int) -> str:
    """Centre the text, with the odd blank on the right (str.center differs for some widths)."""
    left = (width - len(text)) // 2
    return " " * left + text + " " * (width - len(text) - left)
