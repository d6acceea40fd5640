"""Memory picture: a memory plan as SVG, as an HTML page, or as PNG if matplotlib is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from math import log2
from pathlib import Path

from gcl.drawing.canvas import FAINT, INK, MARGIN, WIDTH
from gcl.drawing.units import memory as amount
from ipu_emu.cli.output.chart import Chart, document, html_page, html_table
from ipu_emu.cli.output.memory_text import COLOURS, or_none
from ipu_emu.hardware import System
from ipu_emu.session.memory_liveness import PARTS, IpuMemory

_LEFT, _RIGHT, _BAR, _PLOT = MARGIN + 70, MARGIN + WIDTH, 18, 90
_STYLE = """body { font: 13px "DejaVu Sans", Arial, sans-serif; color: #1f2933; margin: 16px }
h2 { font-size: 14px } table { border-collapse: collapse } td, th { padding: 2px 8px; text-align: right }
td { white-space: nowrap }
tr + tr { border-top: 1px solid #e4e7eb } pre { white-space: pre-wrap }"""


def picture(path: Path, title: str, memories: Sequence[IpuMemory], system: System, notes: str = "") -> bytes:
    """Return the content of a file of the type given by the suffix of ``path``; raise EmulatorError for others.

    ``notes`` are printed on a page, below its table.
    """
    chart = _chart(title, memories, system)
    if path.suffix in (".html", ".htm"):
        return html_page(title, _STYLE, chart.svg() + _tables(memories, system, notes))
    return document(path, title, chart, [asdict(memory) for memory in memories])


def _chart(title: str, memories: Sequence[IpuMemory], system: System) -> Chart:
    """A bar per IPU with a line at its memory, then the live bytes over the program."""
    top = MARGIN + 42
    axis = top + (_BAR + 4) * len(memories)
    plots, height = axis + 90, _PLOT + 12
    bottom = plots + height * len(memories)
    chart = Chart(_RIGHT + MARGIN, bottom + 6 + MARGIN)
    chart.text(MARGIN, MARGIN + 12, title, size=15, bold=True)
    scale = (_RIGHT - _LEFT) / max(system.generation.sram, *(memory.total for memory in memories))
    for row, memory in enumerate(memories):
        _bar(chart, top + (_BAR + 4) * row, memory, scale)
    end, limit = _LEFT + system.generation.sram * scale, f"memory of an IPU: {amount(system.generation.sram)}"
    chart.line([(end, top), (end, axis + 4)], INK, dashed=True)
    chart.text(end, top - 4, limit, size=10, anchor="end")
    chart.line([(_LEFT, axis), (_RIGHT, axis)], FAINT)
    for nbytes in _ticks((_RIGHT - _LEFT) / scale):
        x = _LEFT + nbytes * scale
        chart.text(x, axis + 13, amount(nbytes), size=10, anchor="middle")
        chart.line([(x, axis), (x, axis + 4)], FAINT)
    for row in range(2):
        chart.legend(MARGIN, axis + 24 + 18 * row, list(COLOURS.items())[row::2], step=(130, 0))
    chart.text(MARGIN, axis + 78, "live memory over the program, without persistent data", size=12, bold=True)
    most, last = max(memory.peak_live for memory in memories) or 1, max(len(memory.live) for memory in memories)
    for row, memory in enumerate(memories):
        _plot(chart, plots + height * row, memory, most)
    chart.text(_LEFT, bottom, "instruction 1", size=10, colour=FAINT)
    chart.text(_RIGHT, bottom, f"instruction {last:,}", size=10, anchor="end", colour=FAINT)
    return chart


def _ticks(most: float, about: int = 6) -> list[int]:
    """About ``about`` round amounts of memory from 0 to ``most``."""
    step = 1 << max(0, round(log2(max(most / about, 1))))
    return list(range(0, int(most) + 1, step))


def _tables(memories: Sequence[IpuMemory], system: System, notes: str) -> str:
    """The memory by use, the largest tensors, and ``notes``."""
    head = ("IPU", *PARTS, "total", "share", "Streaming Memory")
    rows = [
        (
            str(memory.ipu),
            *(or_none(memory.parts[part]) for part in PARTS),
            *(amount(memory.total), f"{memory.total / system.generation.sram:.1%}", or_none(memory.streaming)),
        )
        for memory in memories
    ]
    fullest = max(memories, key=lambda memory: memory.total)
    largest = html_table((name, amount(size)) for name, size in fullest.largest)
    return f"<h2>by use</h2>{html_table(rows, head)}<h2>largest on IPU {fullest.ipu}</h2>{largest}" + (
        f"<h2>notes</h2><pre>{escape(notes)}</pre>\n" if notes else ""
    )


def _bar(chart: Chart, y: float, memory: IpuMemory, scale: float) -> None:
    chart.text(MARGIN, y + 13, f"IPU {memory.ipu}")
    parts = memory.parts.items()
    tips = {part: f"{part}: {amount(nbytes)} ({nbytes:,} bytes)" for part, nbytes in parts}
    x = chart.stack(_LEFT, y, _BAR, [(nbytes * scale, COLOURS[part], tips[part]) for part, nbytes in parts])
    if memory.streaming:
        chart.text(x + 6, y + 13, f"plus {amount(memory.streaming)} in Streaming Memory", size=10)


def _plot(chart: Chart, top: float, memory: IpuMemory, most: int) -> None:
    bottom, step = top + _PLOT, (_RIGHT - _LEFT) / max(1, len(memory.live))
    levels = [bottom - _PLOT * live / most for live in memory.live]
    points = [(_LEFT + x * step, level) for at, level in enumerate(levels) for x in (at, at + 1)]
    chart.line([(_LEFT, bottom), *points, (_RIGHT, bottom)], COLOURS["transient"])
    chart.line([(_LEFT, bottom), (_RIGHT, bottom)], FAINT)
    chart.text(MARGIN, bottom, f"IPU {memory.ipu}")
    chart.text(_RIGHT, top + 10, f"peak {amount(memory.peak_live)}", size=10, anchor="end")
    for nbytes in _ticks(most, 3)[1:]:
        y = bottom - _PLOT * nbytes / most
        chart.line([(_LEFT - 4, y), (_LEFT, y)], FAINT)
        chart.text(_LEFT - 6, y + 3, amount(nbytes), size=9, anchor="end", colour=FAINT)
