"""Timeline trace: a modelled timeline as trace events for Perfetto (ui.perfetto.dev).

Every IPU has a row, and its I/O tiles another one. The instructions of a stage are nested in it, for every
micro-batch; an arrow leads from a stage to the next one of its micro-batch on another IPU, and a counter has the
number of busy IPUs. Spans begin at whole nanoseconds, the unit of Perfetto, which rounds starts and lengths down, so
that nesting is preserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Any

from ipu_emu.program.clock.pricing import CostCategory
from ipu_emu.program.clock.span import Span
from ipu_emu.trace.pipelines.working_ipus import working_ipus

__all__ = ["MOST_PARTS", "timeline_trace"]

#: The most instructions nested in stages; later stages are written without them.
MOST_PARTS = 200_000
_PROCESS = 0
_BESIDE = {CostCategory.BESIDE, CostCategory.PREFETCH}

Event = dict[str, Any]


def timeline_trace(title: str, seconds: float, spans: Sequence[Span]) -> dict[str, Any]:
    """The timeline in Chrome's trace event format, times in microseconds."""
    writer = _Events()
    for span in spans:
        writer.add(span)
    about = {"title": title, "modelled_seconds": seconds, "spans_without_their_instructions": writer.shortened}
    events = [*writer.row_names(), *writer.events, *writer.arrows(spans), *writer.counter()]
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
