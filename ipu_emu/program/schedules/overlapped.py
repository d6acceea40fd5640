"""overlapped: the grouped schedule with I/O tiles, which load and store while the other tiles compute."""

from __future__ import annotations

from collections.abc import Iterator

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules.grouped import grouped
from ipu_emu.program.schedules.stages import Mapping, framework_stages, ipus_by_stage
from ipu_emu.program.schedules.task import Slot, Task, Work

__all__ = ["overlapped"]


def overlapped(stages: int, count: int, *, training: bool, mapping: Mapping | None = None) -> Iterator[Slot]:
    """Loads a slot before the first stage computes, results stored a slot after the last: 2 slots more.

    N = 2, inference, 4 micro-batches
      slot      0  1  2    3    4    5  6
      load      0  1  2    3
      stages       0  1 0  1 0  1 0  1
      store              0    1    2  3

    Any count from S + 2 on will do. Within a slot stores come first, then loads, then stages.
    """
    all_stages = framework_stages(ipus_by_stage(stages, mapping), training)
    least = len(all_stages) + 2
    if count < least:
        raise EmulatorError(
            f"The number of iterations of the pipeline must be at least {least}, but it is {count}. With I/O tiles a "
            "pipeline needs two more than its stages; raise the gradient accumulation count"
        )
    first, last = all_stages[0].ipus[0], all_stages[stages - 1].ipus[0]
    computing = [(), *grouped(all_stages, count), ()]
    for number, slot in enumerate(computing):
        stored = number - stages - 1
        store = (Task(last, stages - 1, stored, Work.STORE),) if 0 <= stored < count else ()
        load = (Task(first, 0, number, Work.LOAD),) if number < count else ()
        yield (*store, *load, *slot)
