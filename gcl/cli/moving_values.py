"""Moving values: a schedule run on small numbers, exchange by exchange, as text and as an animated picture.

    replica 0 has 1, 2, 3, ...  replica 1 has 10, 20, 30, ...  replica 2 has 100, 200, 300, ...

so that the digits of a sum show whose values are in it. Empty elements are dots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from gcl.cost.program_cost import Price
from gcl.drawing.canvas import FAINT, MARGIN, Canvas
from gcl.drawing.units import TimeUnit
from gcl.errors import ArgumentError
from gcl.scheduling.phases import ProgramPhase
from gcl.scheduling.program.interpreter import InterpreterState, OneProcess, execute
from gcl.scheduling.program.step_program import OUTPUT, Exchange, Reduce, Slice, Step, StepProgram
from gcl.scheduling.program.text_diagram import columns
from gcl.scheduling.schedule import Schedule

#: The most that can be followed by eye; the digits of more replicas would exceed an integer.
MOST_REPLICAS, MOST_ELEMENTS = 16, 64
_SECONDS = 2.0  # for which a frame of the picture is shown

States = dict[int, InterpreterState]


@dataclass(frozen=True)
class BufferView:
    """The elements of a buffer in fragments of ``width``, and the number of replicas in each: 0 if it is empty."""

    name: str
    values: NDArray[np.int64]
    counts: NDArray[np.int64]
    width: int

    @property
    def cells(self) -> list[str]:
        """The elements as text."""
        return ["." if not count else str(value) for value, count in zip(self.values, self.counts, strict=True)]

    def __str__(self) -> str:
        cells = self.cells
        parts = [" ".join(cells[at : at + self.width]) for at in range(0, len(cells), self.width)]
        return f"{self.name} {' | '.join(parts)}"


@dataclass(frozen=True)
class ReplicaView:
    """What a replica sent and added in a step, and the buffers that the step changed."""

    replica: int
    sent: tuple[str, ...]
    added: tuple[str, ...]
    buffers: tuple[BufferView, ...]


@dataclass(frozen=True)
class ValueFrame:
    """The replicas of the first group after a step of the phase called ``phase``."""

    phase: str
    step: str
    replicas: tuple[ReplicaView, ...]


def frames(schedule: Schedule, costs: Price | None = None) -> list[ValueFrame]:
    """The start and every exchange of all phases.

    Raises ArgumentError for more than ``MOST_REPLICAS`` replicas or ``MOST_ELEMENTS`` elements of each.
    """
    replicas, elements = schedule.fabric.replicas, schedule.elements
    if replicas > MOST_REPLICAS or not 1 <= elements <= MOST_ELEMENTS:
        raise ArgumentError(
            f"the values of {replicas} replicas with {elements} elements each cannot be followed; use at most "
            f"{MOST_REPLICAS} replicas, and --bytes for 1 to {MOST_ELEMENTS} elements"
        )
    values = np.outer(10 ** np.arange(replicas, dtype=np.int64), np.arange(elements, dtype=np.int64) % 9 + 1)
    tensors, value_frames = [values, np.ones_like(values)], list[ValueFrame]()
    for number, phase in enumerate(schedule.phases):
        title = _title(schedule, number, None if costs is None else costs.phases[number].seconds)
        if phase.before is not None:
            tensors = [phase.before.rearrange(tensor) for tensor in tensors]
        program = phase.program
        both = [_states(program, tensor) for tensor in tensors]
        value_frames += _frames_of(phase, title, both)
        tensors = [np.stack([states[r].buffers[OUTPUT] for r in range(replicas)]) for states in both]
        if phase.after is not None:
            tensors = [phase.after.undo(tensor) for tensor in tensors]
    return value_frames


def values_text(shown: Sequence[ValueFrame]) -> str:
    """The frames as text, phase by phase."""
    lines = []
    for phase, of_phase in groupby(shown, key=lambda frame: frame.phase):
        lines += ["", phase]
        for frame in of_phase:
            lines.append(f"  {frame.step}")
            rows = [_row(replica) for replica in frame.replicas]
            widths = [max(len(row[column]) for row in rows) for column in range(3)]
            for row in rows:
                cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True) if width)
                lines.append(f"    {'  '.join(cells)}".rstrip())
    return "\n".join(lines[1:])


def animated(shown: Sequence[ValueFrame], title: str) -> str:
    """The frames as an animated SVG picture; the more replicas an element contains, the darker it is."""
    canvas = Canvas()
    canvas.text(MARGIN, canvas.y + 14, title, size=17, bold=True)
    top = canvas.y + 34
    members = max(len(frame.replicas) for frame in shown)
    bottom = top
    for number, frame in enumerate(shown):
        canvas.begin_group(number, len(shown), _SECONDS)
        canvas.text(MARGIN, top + 10, frame.phase, size=13)
        canvas.text(MARGIN, top + 30, frame.step, size=13, bold=True)
        canvas.y = top + 46
        for replica in frame.replicas:
            _draw(canvas, replica, members)
        canvas.end_group()
        bottom = max(bottom, canvas.y)
    canvas.y = bottom
    return canvas.document()


def _title(schedule: Schedule, number: int, seconds: float | None) -> str:
    phase = schedule.phases[number]
    program = phase.program
    title = (
        f"phase {number + 1} of {len(schedule.phases)}: {program.collective}, {program.method}, over {phase.links}"
    )
    if seconds is None or not program.exchanges:
        return title
    average = seconds / len(program.exchanges)
    return f"{title}, modelled {TimeUnit.of(average).text(average)} for each exchange and the work after it"


def _states(program: StepProgram, tensor: NDArray[np.int64]) -> States:
    return {r: InterpreterState(program, r, tensor[r].copy()) for r in range(program.group.replicas)}


def _frames_of(phase: ProgramPhase, title: str, both: Sequence[States]) -> Iterator[ValueFrame]:
    """Run a phase on the values and on the counts of ``both``, with a frame before every exchange and at its end."""
    program, shown = phase.program, columns(phase.program)
    turn, number = list[Step](), 0
    for step in program.steps:
        if isinstance(step, Exchange):
            yield _frame(program, title, number, turn, both, shown)
            turn, number = [], number + 1
        turn.append(step)
    yield _frame(program, title, number, turn, both, shown)


def _frame(
    program: StepProgram, title: str, number: int, turn: Sequence[Step], both: Sequence[States], shown: Sequence[int]
) -> ValueFrame:
    """Run the steps of one turn; return the frame after it."""
    values, counts = both
    before = {r: {name: buffer.copy() for name, buffer in counts[r].buffers.items()} for r in shown}
    sent: dict[int, list[str]] = {r: [] for r in shown}
    added: dict[int, list[str]] = {r: [] for r in shown}
    for step in turn:
        for r in shown:
            if isinstance(step, Exchange):
                copies = [copy for copy in step.copies if copy.to[r] != r and copy.source.elements]
                sent[r] += [f"{_text(values[r], copy.source, counts[r])} to {copy.to[r]}" for copy in copies]
            elif isinstance(step, Reduce) and step.own.elements:
                own, other = (_text(values[r], part, counts[r]) for part in (step.own, step.received))
                added[r].append(f"{own} + {other}")
        for states in both:
            execute(replace(program, steps=(step,)), states, OneProcess(), np.add)
    names = [name for name in program.buffers if not name.endswith("received")]
    replicas = []
    for r in shown:
        changed = [name for name in names if not number or (before[r][name] != counts[r].buffers[name]).any()]
        pairs = {name: (values[r].buffers[name].copy(), counts[r].buffers[name].copy()) for name in changed}
        views = (BufferView(name, *pair, program.width) for name, pair in pairs.items())
        filled = tuple(view for view in views if view.counts.any())
        replicas.append(ReplicaView(r, tuple(sent[r]), tuple(added[r]), filled))
    return ValueFrame(title, f"exchange {number} of {len(program.exchanges)}" if number else "start", tuple(replicas))


def _text(values: InterpreterState, part: Slice, counts: InterpreterState) -> str:
    return " ".join(BufferView("", values.view(part), counts.view(part), 1).cells)


def _row(replica: ReplicaView) -> tuple[str, str, str]:
    """The columns of a line of text."""
    sent = f"sends {' and '.join(replica.sent)}" if replica.sent else ""
    added = f"adds {', then '.join(replica.added)}" if replica.added else ""
    held = "; ".join(map(str, replica.buffers))
    return f"replica {replica.replica}", sent, "  ".join(part for part in (added, held) if part)


def _draw(canvas: Canvas, replica: ReplicaView, members: int) -> None:
    """Draw one row: the buffers as boxes, with the sent values below them."""
    x = float(MARGIN) + 90
    canvas.text(MARGIN, canvas.y + 13, f"replica {replica.replica}", size=12, bold=True)
    for view in replica.buffers:
        canvas.text(x, canvas.y + 13, view.name, size=11, fill=FAINT)
        x += 7.0 * len(view.name) + 8
        cells = view.cells
        width = max(22.0, 7.5 * max(map(len, cells)) + 8)
        for at, (cell, count) in enumerate(zip(cells, view.counts, strict=True)):
            shade = 97 - 42 * min(int(count), members) / members
            canvas.box(x, canvas.y, width - 2, 19, fill=f"hsl(210,80%,{shade:.0f}%)")
            canvas.text(x + width / 2 - 1, canvas.y + 13, cell, size=11, anchor="middle")
            x += width + (6 if (at + 1) % view.width == 0 else 0)
        x += 14
    notes = [f"sends {text}" for text in replica.sent] + [f"adds {text}" for text in replica.added]
    canvas.text(MARGIN + 90, canvas.y + 31, ";  ".join(notes), size=11, fill=FAINT)
    canvas.y += 42
