"""rotation: micro-batches in rows, each row the list of stages over and over, later rows started later.

3 stages, offsets 0 and 1; "." where there is nothing yet, or nothing any more
  slot     0 1 2 3 4 5 6
  row 0    0 1 2 0 1 2 .     micro-batches 0 and 2
  row 1    . 0 1 2 0 1 2     micro-batches 1 and 3
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu_emu.program.schedules.stages import Stage
from ipu_emu.program.schedules.task import Slot

__all__ = ["rotation"]


def rotation(stages: Sequence[Stage], count: int, offsets: Sequence[int]) -> Iterator[Slot]:
    """The slots of ``count`` micro-batches; within a slot, row by row."""
    length, rows = len(stages), len(offsets)
    last_round, last_row = divmod(count - 1, rows)
    for slot in range((last_round + 1) * length + offsets[last_row]):
        active: Slot = ()
        for row, offset in enumerate(offsets):
            round, stage = divmod(slot - offset, length)
            if 0 <= round * rows + row < count and round >= 0:
                active += stages[stage].tasks(round * rows + row)
        yield active
