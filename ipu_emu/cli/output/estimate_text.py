"""Estimate text: numbers with their formulas, and a table of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gcl.drawing.units import decimal

if TYPE_CHECKING:
    from ipu_emu.predict.estimate import Line

__all__ = ["text"]


def text(lines: Sequence[Line], table: Sequence[dict[str, Any]]) -> str:
    """All lines, then the layers."""
    values = [_value(line) for line in lines]
    name, number = max(len(line.name) for line in lines), max(map(len, values))
    pairs = zip(lines, values, strict=True)
    rows = [f"{line.name:<{name}}  {value:>{number}}  {line.formula}" for line, value in pairs]
    return "\n".join(rows + (["", *_table(table)] if table else []))


def _value(line: Line) -> str:
    value, key = line.value, line.key
    if key == "seconds_per_sample":
        return f"{value * 1e6:,.3f} us"
    if key == "seconds_to_train":
        return f"{value / 60:,.1f} min"
    if key.endswith("_seconds"):
        return f"{value * 1e3:,.3f} ms"
    if key.endswith("_flops"):
        return decimal(value, "FLOP")
    if key.endswith("_bytes"):
        return f"{value:,.0f} B"
    if key.endswith("_percent"):
        return f"{value:.4g} %"
    if key in ("constant_share", "largest_residual"):
        return f"{value:.4f}"
    if key.endswith("_speedup"):
        return f"{value:.4g}"
    return f"{value:,.0f}"


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    width = max(len(row["block"]) for row in rows)
    head = f"{'block':<{width}}  {'count':>5}  {'parameters':>12}  {'forward':>12}  {'activations':>12}"
    return [head] + [
        f"{row['block']:<{width}}  {row['count']:>5}  {row['parameters']:>12,}  "
        f"{decimal(row['forward_flops'], 'FLOP'):>12}  {row['activation_values']:>12,.0f}"
        for row in rows
    ]
