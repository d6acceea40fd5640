"""schedules: which stage of a pipeline works on which micro-batch in which slot.

    grouped       forward and backward of every stage in each slot (2N micro-batches in flight)
    interleaved   forward and backward in turn (N in flight): 1F1B in lock-step
    sequential    one stage at a time, as sharding
    popart        grouped, the last forward stage and its backward as one

Each is a generator of slots; the compiler, the clock and the drawing read the same one. With I/O tiles the
grouped one loads and stores beside the stages (overlapped.py); with batch serialisation a stage of the sequential one
loops over some micro-batches (serialised.py).
"""

from ipu_emu.program.schedules.ramps import RampedSchedule, flattened, ramped_schedule
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
    "ALL_IPUS",
    "SCHEDULES",
    "Mapping",
    "RampedSchedule",
    "Slot",
    "Stage",
    "Task",
    "TaskType",
    "depth",
    "fifo_depth",
    "flattened",
    "in_flight",
    "ramped_schedule",
    "schedule",
    "scheduled_stages",
]
