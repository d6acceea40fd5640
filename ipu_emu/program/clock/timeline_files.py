"""Timeline files: a modelled timeline as a picture, and as a trace for Perfetto (ui.perfetto.dev)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import floor, log10
from pathlib import Path
from typing import Any

from gcl.drawing.canvas import FAINT, MARGIN, WIDTH, Canvas
from gcl.drawing.units import TimeUnit
from ipu_emu.errors import EmulatorError
from ipu_emu.program.clock.pricing import CostCategory
from ipu_emu.program.clock.span import Span
from ipu_emu.program.schedules import TaskType
from ipu_emu.trace.pipelines.stages import working_ipus

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


_WRITERS: dict[str, Callable[[str, float, Sequence[Span]], str]] = {
    ".svg": _svg,
    ".json": lambda title, seconds, spans: json.dumps(timeline_trace(title, seconds, spans)),
}


#: The most instructions nested in stages; later stages are written without them.
MOST_PARTS = 200_000
_PROCESS = 0
_BESIDE = {CostCategory.BESIDE, CostCategory.PREFETCH}

Event = dict[str, Any]


def timeline_trace(title: str, seconds: float, spans: Sequence[Span]) -> dict[str, Any]:
    """The timeline in Chrome's trace event format, times in microseconds.

    Every IPU has a row, and its I/O tiles another one. The instructions of a stage are nested in it, for every
    micro-batch; an arrow leads from a stage to the next one of its micro-batch on another IPU, and a counter has the
    number of busy IPUs. Spans begin at whole nanoseconds, the unit of Perfetto, which rounds starts and lengths down,
    so that nesting is preserved.
    """
    recorded = _Events()
    for span in spans:
        recorded.add(span)
    about = {"title": title, "modelled_seconds": seconds, "spans_without_their_instructions": recorded.shortened}
    events = [*recorded.row_names(), *recorded.events, *recorded.arrows(spans), *recorded.counter()]
    return {"displayTimeUnit": "ns", "otherData": about, "traceEvents": events}


@dataclass
class _Events:
    """The events of spans, with the start and end of the work in each row."""

    events: list[Event] = field(default_factory=list)
    work: dict[tuple[int, bool], list[tuple[int, int]]] = field(default_factory=dict)
    parts: int = 0
    shortened: int = 0

    def add(self, span: Span) -> None:
        """Add a span with its parts; those on another IPU are in the row of that one."""
        begin, end = _times(span)
        self._event(span, begin, end, outer=True)
        if self.parts + len(span.parts) > MOST_PARTS:
            self.shortened += 1
            return
        self.parts += len(span.parts)
        for part in span.parts:
            first, last = _times(part, span.start)
            self._event(part, max(begin, first), min(last, end), outer=part.ipu != span.ipu, about=span)

    def _event(self, span: Span, begin: int, end: float, *, outer: bool, about: Span | None = None) -> None:
        row = span.ipu, span.category in _BESIDE
        work = self.work.setdefault(row, [])
        if outer:
            work.append((begin, max(begin, round(end))))
        self.events.append(
            {
                "name": span.name,
                "cat": span.category.value,
                "ph": "X",
                "pid": _PROCESS,
                "tid": _number(row),
                "ts": begin / 1e3,
                "dur": max(0.0, end - begin) / 1e3,
                "args": dict((about or span).about),
            }
        )

    def row_names(self) -> Iterator[Event]:
        """The names of the rows, in the order of the IPUs."""
        yield {"ph": "M", "name": "process_name", "pid": _PROCESS, "args": {"name": "a replica (modelled)"}}
        for row in sorted(self.work):
            ipu, io_tiles = row
            place = {"ph": "M", "pid": _PROCESS, "tid": _number(row)}
            name = f"IPU {ipu}{', I/O tiles' if io_tiles else ''} (modelled)"
            yield {**place, "name": "thread_name", "args": {"name": name}}
            yield {**place, "name": "thread_sort_index", "args": {"sort_index": _number(row)}}

    def arrows(self, spans: Sequence[Span]) -> Iterator[Event]:
        """Arrows from stages to those on other IPUs that get the micro-batch."""
        latest: dict[tuple[int, int], Span] = {}  # of this iteration of a loop: its stages come one after the other
        number = 0
        for span in spans:
            if "stage" not in span.about:
                continue
            stage, micro_batch = span.about["stage"], span.about["micro-batch"]
            latest[stage, micro_batch] = span
            sender = latest.get((stage - 1, micro_batch))
            if sender is None or sender.ipu == span.ipu:
                continue
            leaves = floor(_times(sender)[1]) - 1
            for at, phase, end in ((leaves, {"ph": "s"}, sender), (_times(span)[0], _ARRIVES, span)):
                place = {"pid": _PROCESS, "tid": _number((end.ipu, False)), "ts": at / 1e3, "id": number}
                yield {"name": "micro-batch", "cat": "stage", **place, **phase}
            number += 1

    def counter(self) -> Iterator[Event]:
        """Events of the counter of busy IPUs."""
        work = [span for (_, io_tiles), spans in self.work.items() if not io_tiles for span in spans]
        for at, count in working_ipus(work):
            yield {"name": "IPUs at work", "ph": "C", "pid": _PROCESS, "ts": at / 1e3, "args": {"IPUs": count}}


#: The end of an arrow, at the span that begins there.
_ARRIVES = {"ph": "f", "bp": "e"}


def _number(row: tuple[int, bool]) -> int:
    """The number of the row of an IPU, or of its I/O tiles."""
    ipu, io_tiles = row
    return 2 * ipu + io_tiles


def _times(span: Span, since: float = 0.0) -> tuple[int, float]:
    """Begin and end in nanoseconds."""
    begin = since + span.start
    return round(begin * 1e9), (begin + span.seconds) * 1e9
