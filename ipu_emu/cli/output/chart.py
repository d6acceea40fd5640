"""Chart: boxes, lines, points and texts of a picture, which is written as SVG, PNG or a page that needs no network.

Coordinates are pixels from the upper left corner. ``Axes`` maps data to them, with linear or logarithmic scales.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from gcl.drawing.canvas import FAINT, INK, MARGIN, Canvas
from ipu_emu.errors import EmulatorError

COLOURS = ("#1565c0", "#e65100", "#00897b", "#8e24aa", "#c0ca33", "#6d4c41", "#d81b60", "#546e7a")


class Chart:
    """A chart of ``width`` x ``height`` pixels: an SVG, and the calls that draw it with matplotlib."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._canvas = Canvas(width - 2 * MARGIN)
        self._canvas.y = height - MARGIN
        self._calls: list[Callable[[Any], object]] = []

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *, title: str = "", hatched: bool = False
    ) -> None:
        self._canvas.box(x, y, width, height, fill=fill, title=title, radius=0)
        for points in _hatching(x, y, width, height) if hatched else ():
            self._canvas.path(_path(points), stroke=INK, width=0.5)
        edge = {"ec": INK, "hatch": "////"} if hatched else {"ec": "none"}
        self._calls.append(lambda axes: axes.add_patch(_rectangle((x, y), width, height, fc=fill, lw=0.3, **edge)))

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False, width: float = 1.5
    ) -> None:
        self._canvas.path(_path(points), stroke=colour, width=width, dashed=dashed)
        style = "--" if dashed else "-"
        self._calls.append(lambda axes: axes.plot(*zip(*points, strict=True), color=colour, lw=width, ls=style))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        anchor: str = "start",
        bold: bool = False,
        colour: str = INK,
    ) -> None:
        self._canvas.text(x, y, text, size=size, anchor=anchor, fill=colour, bold=bold)
        look = {"size": 0.72 * size, "ha": _SIDES[anchor], "color": colour, "weight": "bold" if bold else "normal"}
        self._calls.append(lambda axes: axes.text(x, y, text.replace("$", r"\$"), **look))

    def stack(self, x: float, y: float, height: float, parts: Iterable[tuple[float, str, str]]) -> float:
        """A row of boxes from ``x``, as (width, colour, title); return where it ends."""
        for width, colour, title in parts:
            self.box(x, y, width, height, colour, title=title)
            x += width
        return x

    def legend(self, x: float, y: float, entries: Iterable[tuple[str, str]], *, step: tuple[float, float]) -> None:
        """(name, colour) of each entry, at one ``step`` across and down from the one before."""
        for index, (name, colour) in enumerate(entries):
            left, top = x + step[0] * index, y + step[1] * index
            self.box(left, top, 12, 12, colour)
            self.text(left + 18, top + 10, name, size=11)

    def svg(self) -> str:
        """The picture as SVG."""
        return self._canvas.document()

    def png(self, facts: str = "") -> bytes:
        """The picture as PNG, with a text chunk ``facts``; raise EmulatorError without matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise EmulatorError("a .png needs matplotlib: pip install 'poprun-py[plots]'; or write .svg") from None
        figure = Figure(figsize=(self.width / 100, self.height / 100), dpi=150)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        for draw in self._calls:
            draw(axes)
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.axis("off")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"facts": facts} if facts else None)
        return buffer.getvalue()


#: Anchors of SVG by their names in matplotlib.
_SIDES = {"start": "left", "middle": "center", "end": "right"}


def _rectangle(*place: Any, **look: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(*place, **look)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _hatching(x: float, y: float, width: float, height: float) -> Iterator[tuple[tuple[float, float], ...]]:
    """Diagonal lines across a box."""
    for start in range(6, int(width + height), 6):
        left, right = max(0.0, start - height), min(width, float(start))
        yield (x + left, y + start - left), (x + right, y + start - right)


@dataclass(frozen=True)
class Axes:
    """A frame at ``left``, ``top`` in ``chart``, for data in the ranges ``x`` and ``y``."""

    chart: Chart
    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]
    logarithmic: bool = True

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The pixel of a point."""
        return (
            self.left + self.width * self._part(x, self.x),
            self.top + self.height * (1 - self._part(y, self.y)),
        )

    def _part(self, value: float, limits: tuple[float, float]) -> float:
        low, high = limits
        if self.logarithmic:
            low, high, value = log10(low), log10(high), log10(max(value, 1e-300))
        return (value - low) / ((high - low) or 1.0)

    def frame(self, title: str, x: str, y: str, ticks: Sequence[float]) -> None:
        """Draw the frame, names of axes, and numbers: ``ticks`` below, powers of ten or quarters at the left."""
        chart, bottom = self.chart, self.top + self.height
        chart.text(self.left, self.top - 12, title, size=13, bold=True)
        chart.line([(self.left, self.top), (self.left, bottom), (self.left + self.width, bottom)], INK, width=1)
        for tick in ticks:
            place, _ = self.at(tick, self.y[0])
            chart.text(place, bottom + 16, f"{tick:,g}", size=10, anchor="middle")
        for tick in self._levels():
            _, place = self.at(self.x[0], tick)
            chart.line([(self.left, place), (self.left + self.width, place)], FAINT, width=0.4)
            chart.text(self.left - 6, place + 4, f"{tick:,.4g}", size=10, anchor="end")
        chart.text(self.left + self.width / 2, bottom + 34, x, size=11, anchor="middle")
        chart.text(self.left - 6, self.top - 12, y, size=11, anchor="end")

    def _levels(self) -> list[float]:
        low, high = self.y
        if not self.logarithmic:
            return [low + (high - low) * part / 4 for part in range(5)]
        powers = [10.0**power for power in range(ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9) + 1)]
        return powers if len(powers) > 1 else [low, high]

    def curve(self, xs: Sequence[float], ys: Sequence[float], colour: str, *, dashed: bool = False) -> None:
        self.chart.line([self.at(x, y) for x, y in zip(xs, ys, strict=True)], colour, dashed=dashed, width=2)

    def points(self, xs: Sequence[float], ys: Sequence[float], colour: str, title: str = "") -> None:
        for x, y in zip(xs, ys, strict=True):
            across, down = self.at(x, y)
            self.chart.box(across - 4, down - 4, 8, 8, colour, title=title or f"{x:g}: {y:,.1f}")

    def band(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: str) -> None:
        """An interval as a vertical line at every point, with both ends joined."""
        self.curve(xs, lows, colour, dashed=True)
        self.curve(xs, highs, colour, dashed=True)
        for x, low, high in zip(xs, lows, highs, strict=True):
            self.chart.line([self.at(x, low), self.at(x, high)], colour, width=1)


def document(path: Path, title: str, chart: Chart, facts: Any) -> bytes:
    """The content of a file by its suffix: pictures contain all numbers as JSON, pages also as a table."""
    if path.suffix == ".svg":
        head, end, rest = chart.svg().rpartition("</svg>")
        return f'{head}<metadata id="facts">{escape(json.dumps(facts))}</metadata>{end}{rest}'.encode()
    if path.suffix == ".png":
        return chart.png(json.dumps(facts))
    if path.suffix in (".html", ".htm"):
        body = f"<h1>{escape(title)}</h1>\n{chart.svg()}\n<h2>Numbers</h2>\n{html_table(_flat('', facts))}"
        return html_page(title, _STYLE, body, facts)
    raise EmulatorError(f"--output {path}: pictures are .svg, .html or .png; use one of these suffixes")


_STYLE = (
    "body{font:14px DejaVu Sans,Arial,sans-serif;margin:24px;color:#1f2933}table{border-collapse:collapse}"
    "td{padding:2px 12px 2px 0;border-bottom:1px solid #e4e7eb}td+td{font-family:monospace}"
)


def html_page(title: str, style: str, body: str, facts: Any = None) -> bytes:
    """A page that needs no network; ``facts``: its numbers, for programs that read it."""
    script = f'<script type="application/json" id="facts">\n{script_json(facts)}\n</script>' if facts else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f"<style>{style}</style>\n{body}\n{script}</html>\n"
    ).encode()


def html_table(rows: Iterable[Iterable[str]], head: Iterable[str] = ()) -> str:
    """A table of texts."""
    names = ["".join(f"<th>{escape(name)}</th>" for name in head)]
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return "<table>\n" + "".join(f"<tr>{line}</tr>\n" for line in (*names, *lines) if line) + "</table>\n"


def script_json(value: Any, *, indent: int | None = 1) -> str:
    """JSON for a script element, which a ``<`` could end or keep open; what JSON has no type for becomes text."""
    return json.dumps(value, indent=indent, default=str).replace("<", "\\u003c")


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    """Every number with its path, as in the JSON."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list | tuple):
        pairs = dict(enumerate(value)).items()
    else:
        return [(name, json.dumps(value))]
    return [line for key, item in pairs for line in _flat(f"{name}.{key}" if name else str(key), item)]
