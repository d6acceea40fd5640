"""Memory text: a memory plan as text: a bar per IPU, a table by use, and the live bytes over the program."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gcl.drawing.units import memory as amount
from ipu_emu.hardware import System
from ipu_emu.program.memory_liveness import PARTS, IpuMemory

__all__ = ["text"]

_STYLES = dict(
    zip(
        PARTS,
        (
            "blue",
            "cyan",
            "magenta",
            "green",
            "yellow",
            "bright_yellow",
            "red",
            "white",
            "bright_black",
            "bright_blue",
        ),
        strict=True,
    )
)
_MARKS = dict(zip(PARTS, "WOVGSFTCXE", strict=True))
_HEIGHTS = " ▁▂▃▄▅▆▇█"


def text(title: str, memories: Sequence[IpuMemory], system: System, width: int) -> RenderableType:
    """Return the text; a bar stands for the memory of an IPU, or for the fullest IPU if that does not fit."""
    across = max(20, min(width - 44, 80))
    scale = max(system.generation.sram, *(memory.total for memory in memories))
    legend = "  ".join(f"{_MARKS[part]} {part}" for part in PARTS)
    return Group(
        Text(title, style="bold"),
        Text(f"{legend}  · free", style="dim"),
        _bars(memories, system, across, scale),
        Text(),
        _table(memories),
        Text(),
        Text("live memory over the program, without persistent data"),
        _liveness(memories, across),
        Text(),
        _largest(memories),
    )


def _bars(memories: Sequence[IpuMemory], system: System, across: int, scale: int) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    sram = system.generation.sram
    for memory in memories:
        bar = Text()
        for part, nbytes in memory.parts.items():
            bar.append(_MARKS[part] * round(across * nbytes / scale), style=_STYLES[part])
        bar.append("·" * max(0, across - len(bar)), style="dim")
        used = f"{memory.total / sram:.1%}" if memory.total <= sram else f"{memory.total / sram:.0%}: does not fit"
        table.add_row(f"IPU {memory.ipu}", bar, f"{amount(memory.total)} of {amount(sram)}, {used}")
    return table


def _table(memories: Sequence[IpuMemory]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("IPU")
    for part in PARTS:
        table.add_column(part, justify="right")
    table.add_column("total", justify="right")
    off_chip = any(memory.streaming for memory in memories)
    if off_chip:
        table.add_column("Streaming Memory", justify="right")
    for memory in memories:
        parts = [_or_none(memory.parts[part]) for part in PARTS]
        more = [_or_none(memory.streaming)] if off_chip else []
        table.add_row(str(memory.ipu), *parts, amount(memory.total), *more)
    return table


def _liveness(memories: Sequence[IpuMemory], across: int) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    most = max(memory.peak_live for memory in memories) or 1
    for memory in memories:
        peaks = [max(memory.live[start:end]) for start, end in _pieces(len(memory.live), across)]
        line = "".join(_HEIGHTS[-(-peak * (len(_HEIGHTS) - 1) // most)] for peak in peaks)
        table.add_row(f"IPU {memory.ipu}", line, f"peak {amount(memory.peak_live)}")
    return table


def _pieces(length: int, count: int) -> list[tuple[int, int]]:
    """Return ranges that divide ``length`` instructions into at most ``count`` pieces, none empty."""
    count = min(length, count)
    return [(at * length // count, (at + 1) * length // count) for at in range(count)]


def _largest(memories: Sequence[IpuMemory]) -> Text:
    fullest = max(memories, key=lambda memory: memory.total)
    names = "\n".join(f"  {amount(size):>10}  {name}" for name, size in fullest.largest)
    return Text(f"largest on IPU {fullest.ipu}\n{names}")


def _or_none(nbytes: int) -> str:
    return amount(nbytes) if nbytes else "-"
