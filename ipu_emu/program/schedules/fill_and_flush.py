"""popart: cycles of PopART's pipeline: fill, main, flush."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu_emu.program.schedules.stages import Stage
from ipu_emu.program.schedules.task import Slot

__all__ = ["popart"]


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
