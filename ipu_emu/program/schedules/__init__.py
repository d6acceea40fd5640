"""schedules: which stage of a pipeline works on which micro-batch in which slot.

    grouped       forward and backward of every stage in each slot (2N micro-batches in flight)
    interleaved   forward and backward alternating (N in flight): 1F1B in lock-step
    sequential    one stage at a time, as in sharding
    popart        grouped, with the last forward stage and its backward as one stage

Each is a generator of slots, which the compiler, the clock and the drawings read. With I/O tiles the grouped schedule
loads and stores during the stages; with batch serialisation a stage of the sequential schedule processes several
micro-batches in a row.
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
    "ALL_IPUS", "SCHEDULES", "Mapping", "RampedSchedule", "Slot", "Stage", "Task", "TaskType", "depth", "fifo_depth",
    "flattened", "in_flight", "ramped_schedule", "schedule", "scheduled_stages",
]  # fmt: skip
