"""Timeline files: a modelled timeline as a picture, and as a trace for Perfetto (ui.perfetto.dev)."""

from __future__ import annotations

import json
from pathlib import Path

from gcl.drawing.canvas import FAINT, MARGIN, WIDTH, Canvas
from gcl.drawing.units import TimeUnit
from ipu_emu.clock import CostCategory, Span, TimelineSegment
from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules import TaskType

__all__ = ["written"]

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
_LABEL, _BAR, _MARKS = 70, 26, 6
#: Narrower boxes are not drawn.
_THIN = 0.2


def written(path: Path, title: str, made: TimelineSegment) -> bytes:
    """Return the content of a file of the type given by the suffix of ``path``; raise EmulatorError for others."""
    if path.suffix not in _WRITERS:
        raise EmulatorError(
            f"--output {path}: timelines are .svg or .json (a trace for Perfetto); use one of these suffixes"
        )
    return _WRITERS[path.suffix](title, made).encode()


def _svg(title: str, made: TimelineSegment) -> str:
    """Draw a row per IPU and a box per instruction or task; the tooltip of a box describes it."""
    canvas, unit = Canvas(), TimeUnit.of(made.seconds)
    canvas.text(MARGIN, canvas.y + 12, f"{title}: modelled {unit.text(made.seconds)}", size=15, bold=True)
    canvas.y += 36
    scale = (WIDTH - _LABEL) / made.seconds
    for mark in range(_MARKS + 1):
        x, at = MARGIN + _LABEL + mark * (WIDTH - _LABEL) / _MARKS, mark * made.seconds / _MARKS
        canvas.text(x, canvas.y, unit.text(at), size=9, fill=FAINT, anchor="end" if mark else "start")
    canvas.y += 8
    for ipu in made.by_ipu():
        canvas.text(MARGIN, canvas.y + 17, f"IPU {ipu}", bold=True)
        for span in made.spans:
            if span.ipu == ipu and span.seconds * scale > _THIN:
                _box(canvas, span, scale)
        canvas.y += _BAR + 6
    _legend(canvas, {span.category for span in made.spans})
    return canvas.document()


def _box(canvas: Canvas, span: Span, scale: float) -> None:
    tip = f"{span.name}: {TimeUnit.us.text(span.seconds)} from {TimeUnit.us.text(span.start)} on"
    x, width = MARGIN + _LABEL + span.start * scale, max(span.seconds * scale - 0.3, _THIN)
    canvas.box(x, canvas.y, width, _BAR, fill=_COLOURS[span.category], title=tip, radius=0)


def _legend(canvas: Canvas, kinds: set[CostCategory | TaskType]) -> None:
    canvas.y += 8
    for place, kind in enumerate(kind for kind in _COLOURS if kind in kinds):
        canvas.box(MARGIN + 160 * place, canvas.y, 12, 12, fill=_COLOURS[kind])
        canvas.text(MARGIN + 160 * place + 18, canvas.y + 10, kind.value, size=11)
    canvas.y += 24
    canvas.text(
        MARGIN,
        canvas.y,
        "A loop without a pipeline is drawn once; its time counts once per iteration.",
        fill=FAINT,
    )


def _trace(title: str, made: TimelineSegment) -> str:
    """Return Chrome trace events: a thread per IPU, times in microseconds."""
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": ipu, "args": {"name": f"IPU {ipu} (modelled)"}}
        for ipu in made.by_ipu()
    ]
    spans = [
        {
            "name": span.name,
            "cat": span.category.value,
            "ph": "X",
            "pid": 0,
            "tid": span.ipu,
            "ts": span.start * 1e6,
            "dur": span.seconds * 1e6,
        }
        for span in made.spans
    ]
    return json.dumps({"otherData": {"title": title}, "traceEvents": [*names, *spans]})


_WRITERS = {".svg": _svg, ".json": _trace}
