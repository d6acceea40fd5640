"""Schedule picture: a pipeline schedule as SVG: a row per IPU, a column per slot, a box per task."""

from __future__ import annotations

from gcl.drawing.canvas import FAINT, INK, MARGIN, WIDTH, Canvas
from ipu_emu.cli.output.schedule_summary import PipelineSummary, ipu_name
from ipu_emu.program.schedules import TaskType

__all__ = ["svg"]

_COLOURS = {
    TaskType.FORWARD: "#90caf9",
    TaskType.BACKWARD: "#a5d6a7",
    TaskType.BOTH: "#ce93d8",
    TaskType.RECOMPUTE: "#ffe082",
}
_COLOURS |= {TaskType.LOAD: "#80deea", TaskType.STORE: "#ffab91"}
_LABEL, _LINE = 80, 16


def svg(pipeline: PipelineSummary) -> str:
    """Return the picture; the tooltip of a box describes its task."""
    canvas = Canvas()
    canvas.text(MARGIN, canvas.y + 12, pipeline.title, size=15, bold=True)
    canvas.y += 36
    column = (WIDTH - _LABEL) / len(pipeline.slots)
    step = max(1, round(24 / column))
    for number in range(0, len(pipeline.slots), step):
        canvas.text(MARGIN + _LABEL + number * column, canvas.y, str(number), size=9, fill=FAINT)
    canvas.y += 8
    for ipu in pipeline.ipus:
        _row(canvas, pipeline, ipu, column)
    canvas.y += 8
    used = {task.what for slot in pipeline.slots for task in slot}
    for place, (work, colour) in enumerate((work, colour) for work, colour in _COLOURS.items() if work in used):
        canvas.box(MARGIN + 130 * place, canvas.y, 12, 12, fill=colour)
        canvas.text(MARGIN + 130 * place + 18, canvas.y + 10, work.value, size=11)
    canvas.y += 16
    return canvas.document()


def _row(canvas: Canvas, pipeline: PipelineSummary, ipu: int, column: float) -> None:
    """Draw the row of an IPU, with the tasks of a slot below each other."""
    by_slot = [[task for task in slot if task.ipu == ipu] for slot in pipeline.slots]
    height = _LINE * max(map(len, by_slot))
    canvas.text(MARGIN, canvas.y + 12, ipu_name(ipu), bold=True)
    for number, tasks in enumerate(by_slot):
        for line, task in enumerate(tasks):
            x, y = MARGIN + _LABEL + number * column, canvas.y + line * _LINE
            mark = pipeline.mark(task)
            canvas.box(
                x, y, max(column - 1, 0.5), _LINE - 2, fill=_COLOURS[task.what], title=f"slot {number}: {task}"
            )
            if column > 7 * len(mark):
                canvas.text(x + column / 2, y + 11, mark, size=10, anchor="middle", fill=INK)
    canvas.y += height + 8
