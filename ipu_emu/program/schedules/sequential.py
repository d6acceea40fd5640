"""sequential: one stage at a time, one micro-batch in flight; the same as sharding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu_emu.program.schedules.rotation import rotation
from ipu_emu.program.schedules.stages import Stage
from ipu_emu.program.schedules.task import Slot

__all__ = ["sequential", "sequential_offsets", "sequential_stash"]


def sequential(stages: Sequence[Stage], count: int) -> Iterator[Slot]:
    """Stage k of micro-batch j runs in slot j S + k: count S slots.

    N = 2 in training, 2 micro-batches: the stage that works on each
      slot            0  1  2  3  4  5  6  7
      micro-batch 0   0  1  2  3
      micro-batch 1               0  1  2  3
    """
    yield from rotation(stages, count, sequential_offsets(stages))


def sequential_offsets(stages: Sequence[Stage]) -> tuple[int, ...]:
    """A micro-batch starts when the one before is through."""
    return (0,)


def sequential_stash(stages: int, stage: int) -> int:
    """Nothing waits."""
    return 0
