"""Schedule picture: a pipeline schedule as SVG: a row per IPU, boxes as long as their tasks, the bubble in grey."""

from __future__ import annotations

from gcl.drawing.canvas import FAINT, INK, MARGIN, WIDTH, Canvas
from ipu_emu.cli.output.schedule_summary import PipelineSummary, ipu_name
from ipu_emu.program.schedules import ALL_IPUS, TaskType
from ipu_emu.program.schedules.schedule_timing import Barrier, StageTimes, TimedTask, timed, timing

__all__ = ["svg"]

_COLOURS = {
    TaskType.FORWARD: "#90caf9",
    TaskType.BACKWARD: "#a5d6a7",
    TaskType.BOTH: "#ce93d8",
    TaskType.RECOMPUTE: "#ffe082",
}
_COLOURS |= {TaskType.LOAD: "#80deea", TaskType.STORE: "#ffab91"}
#: The lines below compute on which transfers of I/O tiles are drawn.
_LINES = {TaskType.LOAD: 1, TaskType.STORE: 2}
_BUBBLE = "#eceff1"
_LABEL, _LINE, _NUMBERS = 80, 18, 24


def svg(pipeline: PipelineSummary, times: StageTimes, barrier: Barrier) -> str:
    """Return the picture; the tooltip of a box describes its task."""
    tasks, run = timed(pipeline.slots, times, barrier), timing(pipeline.slots, times, barrier)
    canvas = Canvas()
    canvas.text(MARGIN, canvas.y + 12, pipeline.title, size=15, bold=True)
    figures = f"modelled efficiency {run.efficiency:.1%}, bubble {1 - run.efficiency:.1%}, {run.total:g} time units"
    canvas.text(MARGIN, canvas.y + 30, figures, size=11)
    canvas.y += 54
    scale = (WIDTH - _LABEL) / (run.total or 1.0)
    _slot_numbers(canvas, tasks, scale)
    for ipu in pipeline.ipus:
        _row(canvas, pipeline, ipu, [entry for entry in tasks if entry.task.ipu == ipu], scale)
    canvas.y += 8
    used = {entry.task.what for entry in tasks}
    legend = [(work.value, colour) for work, colour in _COLOURS.items() if work in used]
    for place, (name, colour) in enumerate([*legend, ("bubble", _BUBBLE)]):
        canvas.box(MARGIN + 130 * place, canvas.y, 12, 12, fill=colour)
        canvas.text(MARGIN + 130 * place + 18, canvas.y + 10, name, size=11)
    canvas.y += 16
    return canvas.document()


def _slot_numbers(canvas: Canvas, tasks: list[TimedTask], scale: float) -> None:
    """The numbers of slots where they begin, as far as there is room."""
    begins: dict[int, float] = {}
    for entry in tasks:
        begins[entry.slot] = min(entry.start, begins.get(entry.slot, entry.start))
    free = 0.0
    for number, begin in sorted(begins.items()):
        x = MARGIN + _LABEL + begin * scale
        if x >= free:
            canvas.text(x, canvas.y, str(number), size=9, fill=FAINT)
            free = x + _NUMBERS
    canvas.y += 8


def _row(canvas: Canvas, pipeline: PipelineSummary, ipu: int, tasks: list[TimedTask], scale: float) -> None:
    """The row of an IPU: compute, and below it the transfers of its I/O tiles, if there are any."""
    left = MARGIN + _LABEL
    canvas.text(MARGIN, canvas.y + 13, ipu_name(ipu), bold=True)
    if ipu != ALL_IPUS:
        canvas.box(left, canvas.y, WIDTH - _LABEL, _LINE - 2, fill=_BUBBLE)
    for entry in tasks:
        x, y = left + entry.start * scale, canvas.y + _LINE * _LINES.get(entry.task.what, 0)
        width, mark = (entry.end - entry.start) * scale, pipeline.mark(entry.task)
        tip = f"slot {entry.slot}: {entry.task}, {entry.start:g} to {entry.end:g}"
        canvas.box(x, y, max(width - 1, 0.5), _LINE - 2, fill=_COLOURS[entry.task.what], title=tip)
        if width > 7 * len(mark):
            canvas.text(x + width / 2, y + 12, mark, size=10, anchor="middle", fill=INK)
    canvas.y += _LINE * (1 + max((_LINES.get(entry.task.what, 0) for entry in tasks), default=0)) + 6
