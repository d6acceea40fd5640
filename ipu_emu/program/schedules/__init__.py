"""schedules: which stage of a pipeline works on which micro-batch in which slot.

Each is a row of a table with a generator of slots, which the compiler, the clock, predictions and drawings read. With
I/O tiles some schedules load and store during the stages; with batch serialisation a stage processes several
micro-batches in a row.
"""

from ipu_emu.program.schedules.schedule_table import (
    SCHEDULES,
    depth,
    fifo_depth,
    in_flight,
    schedule,
    scheduled_stages,
)
from ipu_emu.program.schedules.stages import Mapping, Stage
from ipu_emu.program.schedules.task import ALL_IPUS, Slot, Task, TaskType

__all__ = [
    "ALL_IPUS", "SCHEDULES", "Mapping", "Slot", "Stage", "Task", "TaskType", "depth", "fifo_depth",
    "in_flight", "schedule", "scheduled_stages",
]  # fmt: skip
