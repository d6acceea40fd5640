"""Memory text: a memory plan as text: a bar per IPU, a table by use, and the live bytes over the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gcl.drawing.units import memory as amount
from ipu_emu.hardware import System
from ipu_emu.session.memory_liveness import PARTS, IpuMemory

#: The mark of each part in texts, its style on a terminal, and its colour in pictures.
_LOOKS = (
    ("W", "blue", "#90caf9"),
    ("O", "cyan", "#80deea"),
    ("V", "magenta", "#ce93d8"),
    ("G", "green", "#a5d6a7"),
    ("S", "yellow", "#ffe082"),
    ("F", "bright_yellow", "#ffcc80"),
    ("T", "red", "#ef9a9a"),
    ("C", "white", "#cfd8dc"),
    ("X", "bright_black", "#b0bec5"),
    ("E", "bright_blue", "#90a4ae"),
    ("I", "bright_cyan", "#9fa8da"),
    ("H", "bright_magenta", "#bcaaa4"),
)
_MARKS, _STYLES, COLOURS = (dict(zip(PARTS, column, strict=True)) for column in zip(*_LOOKS, strict=True))
_NONE = "-"
#: Characters of the longest name of a use, and of a column of sizes with the gap before it.
_LONGEST_NAME, _COLUMN = 16, 10
_HEIGHTS = " ▁▂▃▄▅▆▇█"


def text(title: str, memories: Sequence[IpuMemory], system: System, width: int) -> RenderableType:
    """Return the text; a bar stands for the memory of an IPU, or for the fullest IPU if that does not fit."""
    used = [_used(memory, system.generation.sram) for memory in memories]
    across = max(20, min(width - 12 - max(map(len, used)), 80))
    scale = max(system.generation.sram, *(memory.total for memory in memories))
    return Group(
        Text(title, style="bold"),
        Text(_legend(width), style="dim"),
        _bars(memories, used, across, scale),
        Text(),
        _table(memories, width),
        Text(),
        Text("live memory over the program, without persistent data"),
        _liveness(memories, across),
        Text(),
        _largest(memories),
    )


def growth_text(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A row per size of a model, ``grown`` to ``value``, with the bytes of its fullest IPU by kind."""
    names = [name for name in rows[0] if name not in ("grown", "value")]
    cells = {name: [or_none(row[name]) for row in rows] for name in names}
    sizes = [f"{row['grown']} {row['value']}" for row in rows]
    lines = {size: [cells[name][at] for name in names] for at, size in enumerate(sizes)}
    return _aligned("grown alone", [name.removesuffix("_bytes").replace("_", " ") for name in names], lines)


def _legend(width: int) -> str:
    """The legend of the marks; lines are not broken between a mark and its name."""
    entries = [*(f"{_MARKS[part]} {part}" for part in PARTS), "· free"]
    lines = [entries[0]]
    for entry in entries[1:]:
        if len(lines[-1]) + 2 + len(entry) <= width:
            lines[-1] += f"  {entry}"
        else:
            lines.append(entry)
    return "\n".join(lines)


def _used(memory: IpuMemory, sram: int) -> str:
    share = f"{memory.total / sram:.1%}" if memory.total <= sram else f"{memory.total / sram:.0%}: does not fit"
    return f"{amount(memory.total)} of {amount(sram)}, {share}"


def _bars(memories: Sequence[IpuMemory], used: Sequence[str], across: int, scale: int) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for memory, text in zip(memories, used, strict=True):
        bar = Text()
        for part, nbytes in memory.parts.items():
            bar.append(_MARKS[part] * round(across * nbytes / scale), style=_STYLES[part])
        bar.append("·" * max(0, across - len(bar)), style="dim")
        table.add_row(f"IPU {memory.ipu}", bar, text)
    return table


def _table(memories: Sequence[IpuMemory], width: int) -> RenderableType:
    """A row for each IPU; if that is too wide, a column for each, as many side by side as fit."""
    rows = {memory.ipu: _row(memory) for memory in memories}
    off_chip = any(memory.streaming for memory in memories)
    names = [*PARTS, "total", *(["Streaming Memory"] if off_chip else [])]
    columns = {name: [row[name] for row in rows.values()] for name in names}
    if sum(max(map(len, (name, *cells))) + 2 for name, cells in columns.items()) + len("IPU") <= width:
        return _aligned("IPU", names, {str(ipu): [row[name] for name in names] for ipu, row in rows.items()})
    room = max(1, (width - _LONGEST_NAME) // _COLUMN)
    ipus = list(rows)
    used = [name for name, cells in columns.items() if any(cell != _NONE for cell in cells)]
    blocks = [ipus[at : at + room] for at in range(0, len(ipus), room)]
    parts: list[RenderableType] = []
    for block in blocks:
        cells = {name: [rows[ipu][name] for ipu in block] for name in used}
        parts += [Text(), _aligned("use", [f"IPU {ipu}" for ipu in block], cells)]
    return Group(*parts[1:])


def _row(memory: IpuMemory) -> Mapping[str, str]:
    """The memory of an IPU by use, as text."""
    parts = {part: or_none(memory.parts[part]) for part in PARTS}
    return {**parts, "total": amount(memory.total), "Streaming Memory": or_none(memory.streaming)}


def _aligned(head: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(head, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for name, cells in rows.items():
        table.add_row(name, *cells)
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


def or_none(nbytes: int) -> str:
    """The bytes as text; ``-`` for none."""
    return amount(nbytes) if nbytes else _NONE
