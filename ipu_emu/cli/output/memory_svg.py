"""Memory picture: a memory plan as SVG, as an HTML page, or as PNG if matplotlib is installed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

from gcl.drawing.canvas import FAINT, INK, MARGIN, WIDTH, Canvas
from gcl.drawing.units import memory as amount
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.program.memory_liveness import PARTS, IpuMemory

__all__ = ["picture"]

_COLOURS = dict(
    zip(
        PARTS,
        (
            *("#90caf9", "#80deea", "#ce93d8", "#a5d6a7", "#ffe082", "#ffcc80", "#ef9a9a"),
            *("#cfd8dc", "#b0bec5", "#90a4ae"),
        ),
        strict=True,
    )
)
_LABEL, _BAR, _PLOT = 70, 18, 90


def picture(path: Path, title: str, memories: Sequence[IpuMemory], system: System) -> bytes:
    """Return the content of a file of the type given by the suffix of ``path``; raise EmulatorError for others."""
    if path.suffix == ".svg":
        return svg(title, memories, system).encode()
    if path.suffix in (".html", ".htm"):
        drawn = svg(title, memories, system)
        return f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title>\n{drawn}'.encode()
    if path.suffix == ".png":
        return _png(title, memories, system)
    raise EmulatorError(f"--output {path}: pictures are .svg, .html or .png; use one of these suffixes")


def svg(title: str, memories: Sequence[IpuMemory], system: System) -> str:
    """Return a bar per IPU with a line at its memory, then the live bytes over the program."""
    canvas = Canvas()
    canvas.text(MARGIN, canvas.y + 12, title, size=15, bold=True)
    canvas.y += 30
    scale = (WIDTH - _LABEL) / max(system.generation.sram, *(memory.total for memory in memories))
    for memory in memories:
        _bar(canvas, memory, scale)
    end = MARGIN + _LABEL + system.generation.sram * scale
    top = canvas.y - len(memories) * (_BAR + 4)
    canvas.path(f"M{end:.1f} {top:.1f}V{canvas.y:.1f}", stroke=INK, dashed=True)
    canvas.text(end, canvas.y + 12, amount(system.generation.sram), size=10, anchor="end")
    canvas.y += 24
    for place, (part, colour) in enumerate(_COLOURS.items()):
        canvas.box(MARGIN + 112 * place, canvas.y, 12, 12, fill=colour)
        canvas.text(MARGIN + 112 * place + 18, canvas.y + 10, part, size=11)
    canvas.y += 36
    canvas.text(MARGIN, canvas.y, "live memory over the program, without persistent data", size=12, bold=True)
    canvas.y += 12
    most = max(memory.peak_live for memory in memories) or 1
    for memory in memories:
        _plot(canvas, memory, most)
    return canvas.document()


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
    canvas.y += _PLOT + 12


def _name(memory: IpuMemory) -> str:
    beside = f"\nplus {amount(memory.streaming)}\nin Streaming Memory" if memory.streaming else ""
    return f"IPU {memory.ipu}{beside}"


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
