"""Timeline files: a modelled timeline as a picture, and as a trace for Perfetto (ui.perfetto.dev)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import floor, log10
from pathlib import Path

from gcl.drawing.canvas import FAINT, MARGIN, WIDTH, Canvas
from gcl.drawing.units import TimeUnit
from ipu_emu.errors import EmulatorError
from ipu_emu.program.clock.pricing import CostCategory
from ipu_emu.program.clock.span import Span
from ipu_emu.program.clock.timeline_trace import timeline_trace
from ipu_emu.program.schedules import TaskType

__all__ = ["round_marks", "timeline_file"]

_COLOURS = {
    CostCategory.COMPUTE: "#90caf9",
    CostCategory.COPY: "#ffcc80",
    CostCategory.STREAMING: "#d7ccc8",
    CostCategory.HOST: "#b0bec5",
    CostCategory.BESIDE: "#cfd8dc",
    CostCategory.PREFETCH: "#dce775",
    CostCategory.COLLECTIVE: "#ce93d8",
    CostCategory.UPDATE: "#ef9a9a",
    TaskType.FORWARD: "#64b5f6",
    TaskType.BACKWARD: "#a5d6a7",
    TaskType.BOTH: "#80cbc4",
}
_LABEL, _BAR, _MARKS = 70, 26, 8
#: The narrowest box that is drawn.
_THIN = 0.2


def timeline_file(path: Path, title: str, seconds: float, spans: Sequence[Span]) -> bytes:
    """Return the content of a file of the type given by the suffix of ``path``; raise EmulatorError for others."""
    if path.suffix not in _WRITERS:
        raise EmulatorError(f"{path}: timelines are .svg or .json (a trace for Perfetto); use one of these suffixes")
    return _WRITERS[path.suffix](title, seconds, spans).encode()


def round_marks(seconds: float, most: int = _MARKS) -> Sequence[float]:
    """At most ``most`` + 1 multiples of 1, 2 or 5 times a power of ten, from 0 up to ``seconds``."""
    if seconds <= 0:
        return [0.0]
    power = 10.0 ** floor(log10(seconds / most))
    step = next(factor * power for factor in (1, 2, 5, 10) if seconds / (factor * power) <= most * (1 + 1e-9))
    return [mark * step for mark in range(floor(seconds / step * (1 + 1e-9)) + 1)]


def _svg(title: str, seconds: float, spans: Sequence[Span]) -> str:
    """Draw a row per IPU and a box per instruction or task; the tooltip of a box describes it."""
    canvas, unit = Canvas(), TimeUnit.of(seconds)
    canvas.text(MARGIN, canvas.y + 12, f"{title}: modelled {unit.text(seconds)}", size=15, bold=True)
    canvas.y += 36
    scale = (WIDTH - _LABEL) / (seconds or 1.0)
    for at in round_marks(seconds):
        x = MARGIN + _LABEL + at * scale
        canvas.text(x, canvas.y, f"{at / unit.value:,.6g} {unit.name}", size=9, fill=FAINT)
    canvas.y += 8
    for ipu in sorted({span.ipu for span in spans}):
        canvas.text(MARGIN, canvas.y + 17, f"IPU {ipu}", bold=True)
        for span in spans:
            if span.ipu == ipu and span.seconds * scale > _THIN:
                _box(canvas, span, scale)
        canvas.y += _BAR + 6
    _legend(canvas, {span.category for span in spans})
    return canvas.document()


def _box(canvas: Canvas, span: Span, scale: float) -> None:
    tip = f"{span.name}: {TimeUnit.us.text(span.seconds)} from {TimeUnit.us.text(span.start)} on"
    x, width = MARGIN + _LABEL + span.start * scale, max(span.seconds * scale - 0.3, _THIN)
    canvas.box(x, canvas.y, width, _BAR, fill=_COLOURS[span.category], title=tip, radius=0)


def _legend(canvas: Canvas, kinds: set[CostCategory | TaskType]) -> None:
    canvas.y += 8
    for index, kind in enumerate(kind for kind in _COLOURS if kind in kinds):
        canvas.box(MARGIN + 160 * index, canvas.y, 12, 12, fill=_COLOURS[kind])
        canvas.text(MARGIN + 160 * index + 18, canvas.y + 10, kind.value, size=11)
    canvas.y += 24


def _trace(title: str, seconds: float, spans: Sequence[Span]) -> str:
    return json.dumps(timeline_trace(title, seconds, spans))


_WRITERS = {".svg": _svg, ".json": _trace}
