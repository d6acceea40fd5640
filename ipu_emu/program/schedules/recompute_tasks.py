"""recompute: where activations that were not kept are computed once more, from the inputs of their stage.

The last forward stage is never recomputed: its backward follows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

from ipu_emu.program.schedules.stages import Stage
from ipu_emu.program.schedules.task import Slot, Task, TaskType

__all__ = ["ahead", "inside"]


def ahead(slots: Iterable[Slot], stages: Sequence[Stage]) -> Iterator[Slot]:
    """A stage of its own in the slot before the backward, after that slot's other work (RecomputeThenBackpropagate).

    Grouped, N = 2, 4 micro-batches; r stands for the recomputation of stage 0
      slot    0   1     2       3         4       5     6
              0   1 0   2 1 0   3 2 1 0   3 2 1   3 2   3
                        r       r         r       r
    In ramp-down it sits where the forward of its stage would have been.
    """
    for slot, following in pairwise(chain(slots, ((),))):
        yield slot + tuple(again for task in following for again in _again(task, stages))


def inside(slots: Iterable[Slot], stages: Sequence[Stage]) -> Iterator[Slot]:
    """Right before the backward, in the same slot (RecomputeAndBackpropagateInterleaved, PopART)."""
    for slot in slots:
        yield tuple(each for task in slot for each in (*_again(task, stages), task))


def _again(task: Task, stages: Sequence[Stage]) -> Slot:
    """The forward that a backward task needs once more, if any."""
    stage = stages[task.stage]
    last = max(each.forward for each in stages)
    if stage.what is not TaskType.BACKWARD or stage.forward == last:
        return ()
    return (Task(task.ipu, stage.forward, task.micro_batch, TaskType.RECOMPUTE),)
