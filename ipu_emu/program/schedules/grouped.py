"""grouped: every IPU does a forward and a backward in each slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu_emu.program.schedules.rotation import rotation
from ipu_emu.program.schedules.stages import Stage
from ipu_emu.program.schedules.task import Slot

__all__ = ["grouped", "grouped_offsets", "grouped_stash"]


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
    """A micro-batch starts in each slot."""
    return tuple(range(len(stages)))


def grouped_stash(stages: int, stage: int) -> int:
    """Slots between the forward of ``stage`` and the one before its backward."""
    return 2 * (stages - 1 - stage)
