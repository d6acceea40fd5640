"""Pipeline: a schedule with all that is said about it: stages, slots, depths."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.cli.units import counted
from ipu_emu.program.schedules import (
    ALL_IPUS,
    Mapping,
    Slot,
    Stage,
    Task,
    Work,
    fifo_depth,
    schedule,
    scheduled_stages,
)

__all__ = ["Pipeline", "ipu_name"]

_MARKS = {Work.FORWARD: "F", Work.BACKWARD: "B", Work.BOTH: "FB", Work.RECOMPUTE: "r"}


@dataclass(frozen=True)
class Pipeline:
    """``forward`` forward stages; ``slots`` in order."""

    kind: str
    forward: int
    count: int
    training: bool
    recompute: bool
    stages: tuple[Stage, ...]
    slots: tuple[Slot, ...]

    @classmethod
    def of(
        cls, kind: str, forward: int, count: int, *, training: bool, mapping: Mapping | None, recompute: bool
    ) -> Pipeline:
        """Schedule; raise EmulatorError for what cannot be scheduled."""
        slots = schedule(kind, forward, count, training=training, mapping=mapping, recompute=recompute)
        stages = scheduled_stages(kind, forward, training=training, mapping=mapping)
        return cls(kind, forward, count, training, recompute, stages, tuple(slots))

    @property
    def ipus(self) -> list[int]:
        return sorted({ipu for stage in self.stages for ipu in stage.ipus})

    @property
    def title(self) -> str:
        what = "training" if self.training else "inference"
        again = ", with recomputation" if self.recompute else ""
        size = f"{counted(self.forward, 'stage')}, {counted(self.count, 'micro-batch')}"
        return f"{self.kind} schedule, {size}, {what}{again}"

    @property
    def most_in_flight(self) -> int:
        """The most micro-batches that are in the pipeline in one slot."""
        length = len(self.stages)
        inside, most = 0, 0
        for slot in self.slots:
            inside += len({task.micro_batch for task in slot if task.stage == 0 and task.what is not Work.RECOMPUTE})
            most = max(most, inside)
            inside -= len({task.micro_batch for task in slot if task.stage == length - 1})
        return most

    @property
    def phases(self) -> tuple[int, int, int]:
        """Slots of ramp-up, main part and ramp-down: before all IPUs work, while they do, and after."""
        busy = [sum(task.what is not Work.RECOMPUTE for task in slot) for slot in self.slots]
        full = [number for number, tasks in enumerate(busy) if tasks == max(busy)]
        return full[0], full[-1] - full[0] + 1, len(busy) - 1 - full[-1]

    def fifo_depth(self, stage: int) -> int:
        return fifo_depth(self.kind, self.forward, stage, self.training)

    def mark(self, task: Task) -> str:
        """The shortest name of a task that is clear on its IPU."""
        forward = self.stages[task.stage].forward
        alone = sum(task.ipu in stage.ipus for stage in self.stages[: self.forward]) == 1
        return (
            f"{_MARKS[task.what]}{task.micro_batch}" if alone else f"{_MARKS[task.what]}{forward}.{task.micro_batch}"
        )


def ipu_name(ipu: int) -> str:
    """What a row of a drawing is called."""
    return "all IPUs" if ipu == ALL_IPUS else f"IPU {ipu}"
