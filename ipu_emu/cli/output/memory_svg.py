"""Memory picture: a memory plan as SVG, as an HTML page, or as PNG if matplotlib is installed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from math import log2
from pathlib import Path

from gcl.drawing.canvas import FAINT, INK, MARGIN, WIDTH, Canvas
from gcl.drawing.units import memory as amount
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.session.memory_liveness import PARTS, IpuMemory

_COLOURS = dict(
    zip(
        PARTS,
        (
            *("#90caf9", "#80deea", "#ce93d8", "#a5d6a7", "#ffe082", "#ffcc80", "#ef9a9a"),
            *("#cfd8dc", "#b0bec5", "#90a4ae", "#9fa8da", "#bcaaa4"),
        ),
        strict=True,
    )
)
_LABEL, _BAR, _PLOT = 70, 18, 90
_STYLE = """body { font: 13px "DejaVu Sans", Arial, sans-serif; color: #1f2933; margin: 16px }
h2 { font-size: 14px } table { border-collapse: collapse } td, th { padding: 2px 8px; text-align: right }
td { white-space: nowrap }
tr + tr { border-top: 1px solid #e4e7eb } pre { white-space: pre-wrap }"""


def picture(path: Path, title: str, memories: Sequence[IpuMemory], system: System, notes: str = "") -> bytes:
    """Return the content of a file of the type given by the suffix of ``path``; raise EmulatorError for others.

    ``notes`` are printed on a page, below its table.
    """
    if path.suffix == ".svg":
        return svg(title, memories, system).encode()
    if path.suffix in (".html", ".htm"):
        return _page(title, memories, system, notes).encode()
    if path.suffix == ".png":
        return _png(title, memories, system)
    raise EmulatorError(f"--output {path}: pictures are .svg, .html or .png; use one of these suffixes")


def svg(title: str, memories: Sequence[IpuMemory], system: System) -> str:
    """Return a bar per IPU with a line at its memory, then the live bytes over the program."""
    canvas = Canvas()
    canvas.text(MARGIN, canvas.y + 12, title, size=15, bold=True)
    canvas.y += 42
    scale = (WIDTH - _LABEL) / max(system.generation.sram, *(memory.total for memory in memories))
    for memory in memories:
        _bar(canvas, memory, scale)
    left = MARGIN + _LABEL
    end, top = left + system.generation.sram * scale, canvas.y - len(memories) * (_BAR + 4)
    canvas.path(f"M{end:.1f} {top:.1f}V{canvas.y + 4:.1f}", stroke=INK, dashed=True)
    limit = f"memory of an IPU: {amount(system.generation.sram)}"
    canvas.text(end, top - 4, limit, size=10, anchor="end")
    canvas.path(f"M{left} {canvas.y:.1f}H{WIDTH + MARGIN}", stroke=FAINT)
    for nbytes in _ticks((WIDTH - _LABEL) / scale):
        canvas.text(left + nbytes * scale, canvas.y + 13, amount(nbytes), size=10, anchor="middle")
        canvas.path(f"M{left + nbytes * scale:.1f} {canvas.y:.1f}v4", stroke=FAINT)
    canvas.y += 24
    for index, (part, colour) in enumerate(_COLOURS.items()):
        canvas.box(MARGIN + 112 * index, canvas.y, 12, 12, fill=colour)
        canvas.text(MARGIN + 112 * index + 18, canvas.y + 10, part, size=11)
    canvas.y += 36
    canvas.text(MARGIN, canvas.y, "live memory over the program, without persistent data", size=12, bold=True)
    canvas.y += 12
    most = max(memory.peak_live for memory in memories) or 1
    for memory in memories:
        _plot(canvas, memory, most)
    left, last = MARGIN + _LABEL, max(len(memory.live) for memory in memories)
    canvas.text(left, canvas.y, "instruction 1", size=10, fill=FAINT)
    canvas.text(WIDTH + MARGIN, canvas.y, f"instruction {last:,}", size=10, anchor="end", fill=FAINT)
    canvas.y += 6
    return canvas.document()


def _ticks(most: float, about: int = 6) -> list[int]:
    """About ``about`` round amounts of memory from 0 to ``most``."""
    step = 1 << max(0, round(log2(max(most / about, 1))))
    return list(range(0, int(most) + 1, step))


def _page(title: str, memories: Sequence[IpuMemory], system: System, notes: str) -> str:
    """A page that needs no network: the picture, a table by use, the largest tensors, and ``notes``."""
    head = "".join(f"<th>{part}</th>" for part in ("IPU", *PARTS, "total", "share", "Streaming Memory"))
    rows = "".join(
        f"<tr><td>{memory.ipu}</td>"
        + "".join(f"<td>{amount(memory.parts[part]) if memory.parts[part] else '-'}</td>" for part in PARTS)
        + f"<td><b>{amount(memory.total)}</b></td><td>{memory.total / system.generation.sram:.1%}</td>"
        + f"<td>{amount(memory.streaming) if memory.streaming else '-'}</td></tr>"
        for memory in memories
    )
    fullest = max(memories, key=lambda memory: memory.total)
    largest = "".join(f"<tr><td>{escape(name)}</td><td>{amount(size)}</td></tr>" for name, size in fullest.largest)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n"
        f"{svg(title, memories, system)}\n<h2>by use</h2><table><tr>{head}</tr>{rows}</table>\n"
        f"<h2>largest on IPU {fullest.ipu}</h2><table>{largest}</table>\n"
        + (f"<h2>notes</h2><pre>{escape(notes)}</pre>\n" if notes else "")
        + "</html>\n"
    )


def _bar(canvas: Canvas, memory: IpuMemory, scale: float) -> None:
    canvas.text(MARGIN, canvas.y + 13, f"IPU {memory.ipu}")
    x = float(MARGIN + _LABEL)
    for part, nbytes in memory.parts.items():
        tip = f"{part}: {amount(nbytes)} ({nbytes:,} bytes)"
        canvas.box(x, canvas.y, nbytes * scale, _BAR, fill=_COLOURS[part], title=tip, radius=0)
        x += nbytes * scale
    if memory.streaming:
        canvas.text(x + 6, canvas.y + 13, f"plus {amount(memory.streaming)} in Streaming Memory", size=10)
    canvas.y += _BAR + 4


def _plot(canvas: Canvas, memory: IpuMemory, most: int) -> None:
    left, bottom, step = MARGIN + _LABEL, canvas.y + _PLOT, (WIDTH - _LABEL) / max(1, len(memory.live))
    points = [f"H{left + at * step:.1f}V{bottom - _PLOT * live / most:.1f}" for at, live in enumerate(memory.live)]
    canvas.path(f"M{left} {bottom:.1f}{''.join(points)}H{WIDTH + MARGIN}V{bottom:.1f}", stroke=_COLOURS["transient"])
    canvas.path(f"M{left} {bottom:.1f}H{WIDTH + MARGIN}", stroke=FAINT)
    canvas.text(MARGIN, bottom, f"IPU {memory.ipu}")
    canvas.text(WIDTH + MARGIN, canvas.y + 10, f"peak {amount(memory.peak_live)}", size=10, anchor="end")
    for nbytes in _ticks(most, 3)[1:]:
        y = bottom - _PLOT * nbytes / most
        canvas.path(f"M{left - 4} {y:.1f}h4", stroke=FAINT)
        canvas.text(left - 6, y + 3, amount(nbytes), size=9, anchor="end", fill=FAINT)
    canvas.y += _PLOT + 12


def _name(memory: IpuMemory) -> str:
    streaming = f"\nplus {amount(memory.streaming)}\nin Streaming Memory" if memory.streaming else ""
    return f"IPU {memory.ipu}{streaming}"


def _png(title: str, memories: Sequence[IpuMemory], system: System) -> bytes:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise EmulatorError(
            "PNG pictures need matplotlib, which is not installed: pip install 'poprun-py[plots]', or write .svg"
        ) from None
    figure = Figure(figsize=(11, 3 + 0.6 * len(memories)), layout="constrained")
    FigureCanvasAgg(figure)
    bars, lines = figure.subplots(2, 1)
    names = [_name(memory) for memory in memories]
    left = [0.0] * len(memories)
    for part in PARTS:
        values = [memory.parts[part] / 2**20 for memory in memories]
        bars.barh(names, values, left=left, label=part, color=_COLOURS[part])
        left = [start + value for start, value in zip(left, values, strict=True)]
    bars.axvline(system.generation.sram / 2**20, color=INK, linestyle="--")
    bars.set(title=title, xlabel="MiB")
    bars.legend(fontsize="small", ncols=4)
    for memory in memories:
        lines.step(range(len(memory.live)), [live / 2**20 for live in memory.live], label=f"IPU {memory.ipu}")
    lines.set(xlabel="instruction", ylabel="live MiB")
    lines.legend(fontsize="small")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return file.getvalue()
