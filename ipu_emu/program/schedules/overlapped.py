"""overlapped: the grouped schedule with I/O tiles, which load and store while the other tiles compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules.grouped import grouped
from ipu_emu.program.schedules.stages import Stage
from ipu_emu.program.schedules.task import Slot, Task, TaskType

__all__ = ["overlapped"]


def overlapped(stages: Sequence[Stage], count: int) -> Iterator[Slot]:
    """Loads a slot before the first stage computes, results stored a slot after the last: 2 slots more.

    N = 2, inference, 4 micro-batches
      slot      0  1  2    3    4    5  6
      load      0  1  2    3
      stages       0  1 0  1 0  1 0  1
      store              0    1    2  3

    Any count from S + 2 on will do. Within a slot stores come first, then loads, then stages.
    """
    least = len(stages) + 2
    if count < least:
        raise EmulatorError(
            f"The number of iterations of the pipeline must be at least {least}, but it is {count}. With I/O tiles a "
            "pipeline needs two more than its stages; raise the gradient accumulation count"
        )
    return _overlapped(stages, count)


def _overlapped(stages: Sequence[Stage], count: int) -> Iterator[Slot]:
    last = max(stage.forward for stage in stages)
    for number, slot in enumerate([(), *grouped(stages, count), ()]):
        stored = number - last - 2
        store = (Task(stages[last].ipus[0], last, stored, TaskType.STORE),) if 0 <= stored < count else ()
        load = (Task(stages[0].ipus[0], 0, number, TaskType.LOAD),) if number < count else ()
        yield (*store, *load, *slot)
