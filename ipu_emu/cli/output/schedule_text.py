"""Schedule text and picture: a pipeline schedule with a row per IPU, a column per slot; its stages and figures."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gcl.drawing.canvas import FAINT, INK, MARGIN, WIDTH, Canvas
from gcl.drawing.units import counted
from ipu_emu.cli.output.schedule_summary import PipelineSummary, ipu_name
from ipu_emu.program.schedules import ALL_IPUS, Task, TaskType
from ipu_emu.program.schedules.schedule_timing import Barrier, StageTimes, TimedTask, timed, timing

_STYLES = {
    TaskType.FORWARD: "blue",
    TaskType.BACKWARD: "green",
    TaskType.BOTH: "magenta",
    TaskType.RECOMPUTE: "yellow",
}
_STYLES |= {TaskType.LOAD: "cyan", TaskType.STORE: "cyan"}
_BARRIERS = {
    Barrier.ONE: "all IPUs sync after each slot",
    Barrier.HALVES: "all IPUs sync after the forward and after the backward tasks of a slot",
    Barrier.NONE: "an IPU waits only for its data",
}


def text(pipeline: PipelineSummary, times: StageTimes, barrier: Barrier, width: int) -> RenderableType:
    """Return the drawing, in bands of at most ``width`` characters, and the tables below it."""
    slots, ipus = pipeline.slots, pipeline.ipus
    cells = [[_cell(pipeline, slot, ipu) for slot in slots] for ipu in ipus]
    column = max(len(cell) for row in cells for cell in row) + 1
    across = max(1, (width - 10) // column)
    bands: list[RenderableType] = [Text(pipeline.title, style="bold")]
    for start in range(0, len(slots), across):
        bands += [Text(), _band(pipeline, cells, start, across, column)]
    return Group(*bands, Text(), _stages(pipeline), Text(), _figures(pipeline, times, barrier))


def _cell(pipeline: PipelineSummary, slot: tuple[Task, ...], ipu: int) -> Text:
    marks = [Text(pipeline.mark(task), style=_STYLES[task.what]) for task in slot if task.ipu == ipu]
    return Text(" ").join(marks) if marks else Text("·", style="dim")


def _band(pipeline: PipelineSummary, cells: list[list[Text]], start: int, across: int, column: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    numbers = range(start, min(start + across, len(pipeline.slots)))
    table.add_column("slot", min_width=8, no_wrap=True)
    for number in numbers:
        table.add_column(str(number), min_width=column - 1, no_wrap=True)
    for ipu, row in zip(pipeline.ipus, cells, strict=True):
        table.add_row(ipu_name(ipu), *(row[number] for number in numbers))
    return table


def _stages(pipeline: PipelineSummary) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("stage", "IPU", "device IPU", "backward stage", "FIFO depth", "live copies"):
        table.add_column(name, justify="right")
    for stage in pipeline.stages[: pipeline.forward]:
        mirror = next(
            (
                s.index
                for s in pipeline.stages[stage.index :]
                if s.forward == stage.index and s.what is not TaskType.FORWARD
            ),
            None,
        )
        depth, copies = pipeline.fifo_depth(stage.index), pipeline.copies(stage.index)
        ipus = ",".join("all" if ipu == ALL_IPUS else str(ipu) for ipu in stage.ipus)
        places = ",".join("all" if ipu == ALL_IPUS else str(pipeline.device_ipus[ipu]) for ipu in stage.ipus)
        table.add_row(str(stage.index), ipus, places, "-" if mirror is None else str(mirror), str(depth), str(copies))
    return table


def _figures(pipeline: PipelineSummary, times: StageTimes, barrier: Barrier) -> Text:
    run = timing(pipeline.slots, times, barrier)
    (up, main, down), used = pipeline.phases, pipeline.phase_use
    ramps = f"ramp-up uses {used[0]:.0%} of the IPUs, main {used[1]:.0%}, ramp-down {used[2]:.0%}\n" if up else ""
    parts = f"forward {_list(times.forward)}" + (f", backward {_list(times.backward)}" if pipeline.training else "")
    return Text(
        f"{counted(len(pipeline.slots), 'slot')}: ramp-up {up}, main {main}, ramp-down {down}\n"
        f"at most {counted(pipeline.max_in_flight, 'micro-batch')} in flight\n"
        f"{ramps}a micro-batch takes {pipeline.latency(times, barrier):g} time units, first task to last\n"
        f"modelled efficiency {run.efficiency:.1%} over {run.total:g} time units ({parts}; {_BARRIERS[barrier]})\n"
        f"{_fifos(pipeline)}"
    )


#: What becomes of values that pass through stages that do not use them, by schedule, and by default.
_PASSING = {
    "interleaved": "copied from stage to stage; over an odd number of them they would enter a FIFO when none leaves",
    "sequential": "copied from stage to stage; one micro-batch is in flight, so there is nothing to queue",
}
_QUEUED = "on IPUs a FIFO can replace the copies, because one enters and one leaves in each slot"


def _fifos(pipeline: PipelineSummary) -> str:
    """What the FIFOs of the table are, and what else is queued."""
    last = pipeline.stages[pipeline.forward - 1].index
    return (
        f"values that pass through stages: {_PASSING.get(pipeline.kind, _QUEUED)}\n"
        f"FIFOs hold values for the backward; host FIFOs are others: inputs for stage 0, results of stage {last}"
    )


def _list(values: tuple[float, ...]) -> str:
    """Return ``1 per stage``, or all values if they differ."""
    return f"{values[0]:g} per stage" if len(set(values)) == 1 else " ".join(f"{value:g}" for value in values)


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
    for index, (name, colour) in enumerate([*legend, ("bubble", _BUBBLE)]):
        canvas.box(MARGIN + 130 * index, canvas.y, 12, 12, fill=colour)
        canvas.text(MARGIN + 130 * index + 18, canvas.y + 10, name, size=11)
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
