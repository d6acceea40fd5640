"""Schedule text: a pipeline schedule as text: a row per IPU, a column per slot, then its stages and figures."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gcl.drawing.units import counted
from ipu_emu.cli.output.schedule_summary import PipelineSummary, ipu_name
from ipu_emu.program.schedules import ALL_IPUS, Task, TaskType
from ipu_emu.program.schedules.schedule_timing import Barrier, StageTimes, timing

__all__ = ["text"]

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
    cells = [[_cell(pipeline, slot, ipu) for slot in pipeline.slots] for ipu in pipeline.ipus]
    column = max(len(cell) for row in cells for cell in row) + 1
    across = max(1, (width - 10) // column)
    bands: list[RenderableType] = [Text(pipeline.title, style="bold")]
    for start in range(0, len(pipeline.slots), across):
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
    up, main, down = pipeline.phases
    parts = f"forward {_list(times.forward)}" + (f", backward {_list(times.backward)}" if pipeline.training else "")
    return Text(
        f"{counted(len(pipeline.slots), 'slot')}: ramp-up {up}, main {main}, ramp-down {down}\n"
        f"at most {counted(pipeline.max_in_flight, 'micro-batch')} in flight\n"
        f"modelled efficiency {run.efficiency:.1%} over {run.total:g} time units ({parts}; {_BARRIERS[barrier]})"
    )


def _list(values: tuple[float, ...]) -> str:
    """Return ``1 per stage``, or all values if they differ."""
    return f"{values[0]:g} per stage" if len(set(values)) == 1 else " ".join(f"{value:g}" for value in values)
