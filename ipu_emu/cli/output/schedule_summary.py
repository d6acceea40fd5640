"""Schedule summary: a pipeline schedule with its stages, slots, FIFO depths and phases."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from gcl.drawing.units import counted
from ipu_emu.hardware import SelectionOrder, shard_order
from ipu_emu.program.schedules import (
    ALL_IPUS,
    Mapping,
    Slot,
    Stage,
    Task,
    TaskType,
    fifo_depth,
    schedule,
    scheduled_stages,
)
from ipu_emu.program.schedules.schedule_timing import Barrier, StageTimes, timed

_MARKS = {
    TaskType.FORWARD: "F",
    TaskType.BACKWARD: "B",
    TaskType.BOTH: "FB",
    TaskType.RECOMPUTE: "r",
    TaskType.LOAD: "L",
    TaskType.STORE: "S",
}
_COMPUTING = (TaskType.FORWARD, TaskType.BACKWARD, TaskType.BOTH)


@dataclass(frozen=True)
class PipelineSummary:
    """``forward`` forward stages, on the IPUs of ``mapping``; ``count`` times ``iterations`` micro-batches."""

    kind: str
    forward: int
    count: int
    mapping: Mapping | None
    training: bool
    recompute: bool
    io_tiles: bool
    iterations: int
    order: SelectionOrder

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slots in order; raise EmulatorError for a schedule that is not possible."""
        names = ("training", "mapping", "recompute", "io_tiles", "iterations")
        options = {name: getattr(self, name) for name in names}
        return tuple(schedule(self.kind, self.forward, self.count, **options))

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        return scheduled_stages(self.kind, self.forward, training=self.training, mapping=self.mapping)

    @property
    def ipus(self) -> list[int]:
        return sorted({ipu for stage in self.stages for ipu in stage.ipus})

    @property
    def device_ipus(self) -> dict[int, int]:
        """IPUs of the device by IPU of the mapping; a device has a power of two of IPUs."""
        mapping = [ipu for stage in self.stages[: self.forward] for ipu in stage.ipus]
        width = 1 << max(self.ipus).bit_length() if max(self.ipus) > 0 else 1
        devices = shard_order(self.order, width, mapping)
        return {ipu: devices[ipu] for ipu in self.ipus if ipu != ALL_IPUS}

    @property
    def title(self) -> str:
        what = "training" if self.training else "inference"
        more = ", with recomputation" if self.recompute else ""
        more += ", I/O tiles" if self.io_tiles else ""
        more += f", {self.iterations} of them in a row" if self.iterations > 1 else ""
        size = f"{counted(self.forward, 'stage')}, {counted(self.count * self.iterations, 'micro-batch')}"
        return f"{self.kind} schedule, {size}, {what}{more}"

    @property
    def max_in_flight(self) -> int:
        """The maximum number of micro-batches in the pipeline in one slot."""
        length = len(self.stages)
        inside, most = 0, 0
        for slot in self.slots:
            inside += len({task.micro_batch for task in slot if task.stage == 0 and task.what in _COMPUTING})
            most = max(most, inside)
            inside -= len({task.micro_batch for task in slot if task.stage == length - 1 and task.what in _COMPUTING})
        return most

    @property
    def phases(self) -> tuple[int, int, int]:
        """Slots of ramp-up, main phase and ramp-down: before, while and after all IPUs compute."""
        full = [number for number, tasks in enumerate(self._busy) if tasks == max(self._busy)]
        return full[0], full[-1] - full[0] + 1, len(self._busy) - 1 - full[-1]

    @property
    def phase_use(self) -> tuple[float, ...]:
        """The tasks of each phase, as a fraction of those that its slots would have if all were full."""
        busy = iter(self._busy)
        tasks = [sum(islice(busy, slots)) for slots in self.phases]
        return tuple(
            count / (slots * max(self._busy)) if slots else 0.0
            for count, slots in zip(tasks, self.phases, strict=True)
        )

    @property
    def _busy(self) -> list[int]:
        """The number of tasks that compute in each slot."""
        return [sum(task.what in _COMPUTING for task in slot) for slot in self.slots]

    def latency(self, times: StageTimes, barrier: Barrier) -> float:
        """The longest time from the start of the first task of a micro-batch to the end of its last."""
        spans: dict[int, tuple[float, float]] = {}
        for entry in timed(self.slots, times, barrier):
            start, end = spans.get(entry.task.micro_batch, (entry.start, entry.end))
            spans[entry.task.micro_batch] = min(start, entry.start), max(end, entry.end)
        return max(end - start for start, end in spans.values())

    def fifo_depth(self, stage: int) -> int:
        return fifo_depth(self.kind, self.forward, stage, self.training)

    def copies(self, stage: int) -> int:
        """Return the live copies of a forward value of a stage: its FIFO and the current one, or all of a loop."""
        return max(self.fifo_depth(stage) + 1, self.iterations)

    def mark(self, task: Task) -> str:
        """Return the shortest name of a task that is unique on its IPU."""
        forward = self.stages[task.stage].forward
        alone = sum(task.ipu in stage.ipus for stage in self.stages[: self.forward]) == 1
        return (
            f"{_MARKS[task.what]}{task.micro_batch}" if alone else f"{_MARKS[task.what]}{forward}.{task.micro_batch}"
        )


def ipu_name(ipu: int) -> str:
    """Return the label of a row."""
    return "all IPUs" if ipu == ALL_IPUS else f"IPU {ipu}"
