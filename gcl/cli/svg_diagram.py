"""SVG diagram: a picture of a schedule: the ladder with its rings, the fragments sent, and the modelled time.

title
ladder of each domain, rings as arrows, one colour per stream; where there are more than two, a ladder for each
one grid per phase: a row per replica in ring order, a column per exchange, a colour per fragment (a large grid shows
    the first and last rows and columns only)
bar of modelled time
"""

from __future__ import annotations

from dataclasses import dataclass

from gcl.cost.program_cost import Price
from gcl.drawing.canvas import FAINT, MARGIN, STREAMS, WIDTH, Canvas
from gcl.drawing.units import TimeUnit, counted
from gcl.fabric.fabric import Fabric, Topology
from gcl.scheduling.phases import ProgramPhase
from gcl.scheduling.program.step_program import CrossReplicaCopy, Exchange
from gcl.scheduling.program.text_diagram import columns, sent_fragment
from gcl.scheduling.schedule import Schedule

_PHASES = ("#90caf9", "#ffcc80", "#ffe0b2", "#bbdefb")
_RAILS, _DOMAINS_DRAWN = 74, 3
#: The most parts of cells in a grid; a larger one shows this many rows, and as many columns as fit.
_ALL, _SOME, _ROWS = 420, 280, 8


def picture(schedule: Schedule, title: str, subtitle: str, costs: Price | None) -> str:
    """The SVG document; ``costs`` is None where the fabric has no price."""
    canvas = Canvas()
    canvas.text(MARGIN, canvas.y + 14, title, size=17, bold=True)
    canvas.text(MARGIN, canvas.y + 34, subtitle, fill=FAINT)
    canvas.y += 52
    _draw_fabric(canvas, schedule)
    for number, phase in enumerate(schedule.phases):
        _draw_phase(canvas, schedule, phase, f"phase {number + 1} of {len(schedule.phases)}")
    if costs is not None:
        _draw_time(canvas, schedule, costs)
    return canvas.document()


# -------------------------------------------------------------------------------------------------- fabric and rings


def _draw_fabric(canvas: Canvas, schedule: Schedule) -> None:
    fabric, rings = schedule.fabric, _ring_copies(schedule)
    shown, room = min(fabric.domains, _DOMAINS_DRAWN), 62 if fabric.topology is Topology.TORUS else 44
    # four rings on one ladder would hide each other: draw one ladder per ring
    ladders = [[number] for number in range(len(rings))] if len(rings) > 2 else [list(range(len(rings)))]
    for domain in range(shown):
        for numbers in ladders:
            canvas.y += room
            _draw_ladder(canvas, fabric, domain)
            _draw_rings(canvas, schedule, domain, numbers, side_by_side=len(ladders) == 1)
            if domain + 1 < shown and numbers is ladders[-1]:
                _draw_gateways(canvas, fabric, 2 * room - 48)
            canvas.y += _RAILS + room
    notes = [f"and {fabric.domains - shown} more IPU-Link domains"] if fabric.domains > shown else []
    notes += ["dashed: GW-Links, one per IPU-Machine"] if fabric.domains > 1 else []
    notes += ["loop-back cables join the ends of each rail"] if fabric.topology is Topology.TORUS else []
    for note in notes:
        canvas.text(MARGIN, canvas.y, note, size=11, fill=FAINT)
        canvas.y += 16
    _draw_legend(canvas, schedule)


def _spacing(fabric: Fabric) -> float:
    return min(72.0, (WIDTH - 90) / max(1, fabric.rows))


def _place(canvas: Canvas, fabric: Fabric, ipu: int) -> tuple[float, float]:
    """Position of ``ipu`` in the picture: rows from left to right, rail 0 below."""
    _, row, rail = fabric.coordinates(ipu)
    return MARGIN + 90 + row * _spacing(fabric), canvas.y + (0 if rail else _RAILS)


def _draw_ladder(canvas: Canvas, fabric: Fabric, domain: int) -> None:
    first = domain * fabric.ipus_per_domain
    ipus = range(first, first + fabric.ipus_per_domain)
    replicas = range(fabric.replica_of(first), fabric.replica_of(ipus[-1]) + 1) if fabric.ipus_per_replica > 1 else ()
    for replica in replicas:
        _draw_replica(canvas, fabric, replica)
    for ipu in ipus:
        x, y = _place(canvas, fabric, ipu)
        for other in (ipu + 1 - 2 * (ipu % 2), ipu + 2):
            if ipu < other < ipus.stop:
                there = _place(canvas, fabric, other)
                canvas.path(f"M{x:.1f} {y:.1f} L{there[0]:.1f} {there[1]:.1f}", stroke="#cbd2d9", width=1)
    for replica in replicas:
        _draw_name(canvas, fabric, replica)
    size = min(26.0, _spacing(fabric) * 0.72)
    for ipu in ipus:
        x, y = _place(canvas, fabric, ipu)
        canvas.box(x - size / 2, y - size / 2, size, size, fill="#e4e7eb", stroke=FAINT, radius=4)
        canvas.text(x, y + size * 0.16, str(ipu), size=size * 0.45, anchor="middle")
    for rail, label in ((1, "rail 1"), (0, "rail 0")):
        canvas.text(MARGIN, canvas.y + (0 if rail else _RAILS) + 4, label, size=11, fill=FAINT)
    if fabric.domains > 1:
        canvas.text(MARGIN, canvas.y + _RAILS / 2 + 4, f"domain {domain}", size=11, bold=True)


def _sides(canvas: Canvas, fabric: Fabric, replica: int) -> tuple[float, float]:
    ipus, half = fabric.ipus_of(replica), _spacing(fabric) * 0.46
    return _place(canvas, fabric, ipus[0])[0] - half, _place(canvas, fabric, ipus[-1])[0] + half


def _draw_replica(canvas: Canvas, fabric: Fabric, replica: int) -> None:
    left, right = _sides(canvas, fabric, replica)
    canvas.box(left, canvas.y - 22, right - left, _RAILS + 44, fill="#f5f7fa", stroke="#cbd2d9", radius=6)


def _draw_name(canvas: Canvas, fabric: Fabric, replica: int) -> None:
    """Write the number of the replica over its rungs, with the word replica if it fits."""
    left, right = _sides(canvas, fabric, replica)
    middle, y = (left + right) / 2, canvas.y + _RAILS / 2
    text = f"replica {replica}" if right - left > 72 else str(replica)
    half = 3.2 * len(text) + 3
    canvas.box(middle - half, y - 8, 2 * half, 16, fill="#f5f7fa")
    canvas.text(middle, y + 4, text, size=10, anchor="middle")


def _draw_gateways(canvas: Canvas, fabric: Fabric, length: float) -> None:
    for row in range(0, fabric.rows, 2):
        x = _place(canvas, fabric, 2 * row)[0] + _spacing(fabric) / 2 * (fabric.rows > 1)
        canvas.path(f"M{x:.1f} {canvas.y + _RAILS + 24:.1f} v {length:.1f}", stroke=FAINT, width=1.5, dashed=True)


def _ring_copies(schedule: Schedule) -> list[CrossReplicaCopy]:
    """One copy per stream of the first ring inside the domains."""
    for phase in schedule.phases:
        if phase.program.orders and phase.program.exchanges and phase.links == "IPU-Links":
            copies = phase.program.exchanges[0].copies
            return list({copy.stream: copy for copy in reversed(copies)}.values())[::-1]
    return []


def _draw_rings(canvas: Canvas, schedule: Schedule, domain: int, numbers: list[int], *, side_by_side: bool) -> None:
    fabric, copies = schedule.fabric, _ring_copies(schedule)
    for number in numbers:
        copy, distance = copies[number], 3.0 + 4.0 * (number // 2) * side_by_side
        for sender, receiver in copy.pairs():
            if fabric.domain_of(fabric.ipus_of(sender)[0]) != domain:
                continue
            if fabric.ipus_per_replica == 1:
                shape = _straight(canvas, fabric, sender, receiver, distance)
            else:
                shape = _arc(canvas, fabric, sender, receiver)
            canvas.path(shape, stroke=STREAMS[number], arrow=number)


def _straight(canvas: Canvas, fabric: Fabric, sender: int, receiver: int, distance: float) -> str:
    """An arrow at ``distance`` to the right of the link; for a loop-back cable, above or below the ladder."""
    (x, y), (to_x, to_y) = _place(canvas, fabric, sender), _place(canvas, fabric, receiver)
    if abs(to_x - x) > 1.5 * _spacing(fabric):
        away, outer = (1 if y > canvas.y else -1), to_x > x
        x, to_x = x - 4, to_x + 4
        bend, edge = y + away * (66 if outer else 50), y + away * 13
        return f"M{x:.1f} {edge:.1f} C{x:.1f} {bend:.1f} {to_x:.1f} {bend:.1f} {to_x:.1f} {edge:.1f}"
    length = max(1.0, ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5)
    along = ((to_x - x) / length, (to_y - y) / length)
    off, gap = (-along[1] * distance, along[0] * distance), min(13.0, _spacing(fabric) * 0.36)
    start = (x + off[0] + along[0] * gap, y + off[1] + along[1] * gap)
    end = (to_x + off[0] - along[0] * gap, to_y + off[1] - along[1] * gap)
    return f"M{start[0]:.1f} {start[1]:.1f} L{end[0]:.1f} {end[1]:.1f}"


def _arc(canvas: Canvas, fabric: Fabric, sender: int, receiver: int) -> str:
    """Draw an arc between replicas: above the ladder if it goes up, below if it goes down."""
    up = receiver > sender
    ends = [
        sum(_place(canvas, fabric, ipu)[0] for ipu in fabric.ipus_of(replica)) / fabric.ipus_per_replica
        for replica in (sender, receiver)
    ]
    y = canvas.y - 22 if up else canvas.y + _RAILS + 22
    bend = min(30.0, 8 + abs(ends[1] - ends[0]) * 0.12) * (-1 if up else 1)
    return f"M{ends[0]:.1f} {y:.1f} C{ends[0]:.1f} {y + bend:.1f} {ends[1]:.1f} {y + bend:.1f} {ends[1]:.1f} {y:.1f}"


def _draw_legend(canvas: Canvas, schedule: Schedule) -> None:
    x = float(MARGIN)
    for number, copy in enumerate(_ring_copies(schedule)):
        canvas.path(f"M{x:.1f} {canvas.y:.1f} h 24", stroke=STREAMS[number], width=2, arrow=number)
        canvas.text(x + 32, canvas.y + 4, copy.stream)
        x += 60 + 7.2 * len(copy.stream)
    canvas.y += 28


# -------------------------------------------------------------------------------------------------- exchanges


def _draw_phase(canvas: Canvas, schedule: Schedule, phase: ProgramPhase, label: str) -> None:
    program = phase.program
    canvas.text(
        MARGIN, canvas.y + 10, f"{label}: {program.collective}, {program.method}, {phase.links}", size=14, bold=True
    )
    nbytes = program.elements_sent(0) * schedule.itemsize
    notes = [f"{counted(len(program.exchanges), 'exchange')}, {nbytes:,} bytes sent per replica"]
    if program.group.count > 1:
        notes.append(f"group 0 of {program.group.count}; the other groups do the same")
    notes.append("cell: the fragment this replica sends, named by its owner")
    canvas.text(MARGIN, canvas.y + 28, "; ".join(notes), size=11, fill=FAINT)
    canvas.y += 44
    if program.exchanges:
        _draw_grid(canvas, schedule, phase)
    canvas.y += 18


def _draw_grid(canvas: Canvas, schedule: Schedule, phase: ProgramPhase) -> None:
    exchanges, replicas = phase.program.exchanges, columns(phase.program)
    streams = max(len(exchange.streams()) for exchange in exchanges)
    rows, turns = _shown(len(replicas), len(exchanges), streams)
    width = max(13.0, min(9.0 * len(str(len(replicas))) + 16, (WIDTH - 90) / len(turns)))
    height = max(14.0, 11.0 * streams + 3)
    left = MARGIN + 90
    for column, number in enumerate(turns):
        label = "..." if number is None else str(number + 1)
        if width >= 18 or column % 4 == 0 or number is None:
            canvas.text(left + (column + 0.5) * width, canvas.y + 8, label, size=9, anchor="middle", fill=FAINT)
    canvas.text(MARGIN, canvas.y + 8, "exchange", size=9, fill=FAINT)
    canvas.y += 14
    for row in rows:
        if row is None:
            canvas.text(left - 8, canvas.y + 10, "...", size=10, anchor="end")
            canvas.y += 14
            continue
        replica = replicas[row]
        canvas.text(left - 8, canvas.y + height / 2 + 3, f"replica {replica}", size=10, anchor="end")
        for column, number in enumerate(turns):
            if number is not None:
                cell = _Cell(left + column * width, canvas.y, width, height)
                _draw_cell(canvas, cell, exchanges[number], replica, phase.program.group.size, schedule.itemsize)
        canvas.y += height


def _shown(rows: int, columns: int, streams: int) -> tuple[list[int | None], list[int | None]]:
    """The rows and columns of a grid that are drawn; None stands for a gap."""
    if rows * columns * streams <= _ALL:
        return list(range(rows)), list(range(columns))
    some = min(rows, _ROWS)
    return _ends(rows, some), _ends(columns, max(4, _SOME // (some * streams)))


def _ends(count: int, most: int) -> list[int | None]:
    """The first ones, a gap, and the last one."""
    return list(range(count)) if count <= most else [*range(most - 1), None, count - 1]


@dataclass(frozen=True)
class _Cell:
    """Position and size of a cell of a grid."""

    x: float
    y: float
    width: float
    height: float


def _draw_cell(canvas: Canvas, cell: _Cell, exchange: Exchange, replica: int, members: int, itemsize: int) -> None:
    streams = exchange.streams()
    part = (cell.height - 3) / len(streams)
    for index, (name, copies) in enumerate(streams.items()):
        text, copy = sent_fragment(copies[0], replica), copies[0]
        if text == "-":
            continue
        nbytes = sum(stream_copy.source.elements for stream_copy in copies) * itemsize
        fill = f"hsl({360 * copy.carries[replica] / members:.0f},75%,{93 if copy.redundant else 78}%)"
        tip = f"{name}: replica {replica} sends fragment {text} to replica {copy.to[replica]}, {nbytes:,} bytes"
        y = cell.y + 1 + index * part
        canvas.box(cell.x + 1, y, cell.width - 2, part * 0.95, fill=fill, title=tip)
        if part >= 9:
            size = min(10.0, part - 2, (cell.width - 2) / max(2, len(text)) * 1.5)
            canvas.text(cell.x + cell.width / 2, y + part / 2 + size * 0.36, text, size=size, anchor="middle")


# -------------------------------------------------------------------------------------------------- time


def _draw_time(canvas: Canvas, schedule: Schedule, costs: Price) -> None:
    total = costs.total.seconds
    unit = TimeUnit.of(total)
    canvas.text(MARGIN, canvas.y + 10, f"modelled time {unit.text(total)}", size=14, bold=True)
    canvas.y += 20
    x = float(MARGIN)
    for number, (phase, cost) in enumerate(zip(schedule.phases, costs.phases, strict=True)):
        width = WIDTH * cost.seconds / total if total else 0.0
        label = f"{phase.program.collective} {unit.text(cost.seconds)}"
        canvas.box(x, canvas.y, width, 26, fill=_PHASES[number % len(_PHASES)], title=label)
        if width > 6.5 * len(label):
            canvas.text(x + width / 2, canvas.y + 17, label, size=11, anchor="middle")
        x += width
    canvas.y += 30
