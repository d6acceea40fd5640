"""grouped: every IPU does a forward and a backward in each slot; also with I/O tiles, and as PopART's cycles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules.stages import Stage, rotation
from ipu_emu.program.schedules.task import Slot, Task, TaskType


def grouped(stages: Sequence[Stage], count: int) -> Iterator[Slot]:
    """Stage k of micro-batch j runs in slot j + k: count + S - 1 slots, S micro-batches in flight.

    N = 2 in training (stages 0, 1 forward, 2, 3 backward), 4 micro-batches: the stage that works on each
      slot            0  1  2  3  4  5  6
      micro-batch 0   0  1  2  3
      micro-batch 1      0  1  2  3
      micro-batch 2         0  1  2  3
      micro-batch 3            0  1  2  3

    Within a slot the oldest micro-batch, that is the last stage, comes first.
    """
    for slot in rotation(stages, count, grouped_offsets(stages)):
        yield tuple(sorted(slot, key=lambda task: task.micro_batch))


def grouped_offsets(stages: Sequence[Stage]) -> tuple[int, ...]:
    """One micro-batch starts in each slot."""
    return tuple(range(len(stages)))


def grouped_stash(stages: int, stage: int) -> int:
    """Slots between the forward of ``stage`` and the one before its backward."""
    return 2 * (stages - 1 - stage)


def overlapped(stages: Sequence[Stage], count: int) -> Iterator[Slot]:
    """Loads a slot before the first stage computes, results stored a slot after the last: 2 slots more.

    N = 2, inference, 4 micro-batches
      slot      0  1  2    3    4    5  6
      load      0  1  2    3
      stages       0  1 0  1 0  1 0  1
      store              0    1    2  3

    The count must be at least S + 2. Within a slot stores come first, then loads, then stages.
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


def popart(stages: Sequence[Stage], count: int) -> Iterator[Slot]:
    """Stage s runs micro-batch c - s in cycle c, for s <= c < s + count: count + P - 1 cycles.

    F = 2 in training (P = 3: forward 0, forward and backward 1, backward 2), 3 micro-batches
      cycle           0  1  2  3  4       fill P - 1, main count - P + 1, flush P - 1
      micro-batch 0   0  1  2
      micro-batch 1      0  1  2
      micro-batch 2         0  1  2

    Within a cycle the stages come in ascending order.
    """
    for cycle in range(count + len(stages) - 1):
        active = (stage for stage in stages if stage.index <= cycle < stage.index + count)
        yield tuple(task for stage in active for task in stage.tasks(cycle - stage.index))
