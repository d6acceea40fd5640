"""RampedSchedule: a schedule as a Pod stores it: a ramp-up, a main block that is repeated, and a ramp-down.

Row i of a block holds the list of stages rotated right by the start of micro-batch i; None where it has no stage.

    grouped, N = 1 in training         ramp-up   main   ramp-down
      row 0 (starts in slot 0)          0 1      0 1      . .
      row 1 (starts in slot 1)          . 0      1 0      1 .
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Row = tuple[int | None, ...]
RampBlock = tuple[Row, ...]


@dataclass(frozen=True)
class RampedSchedule:
    """``main`` runs ``repeats`` times between the ramps; without ramps (one row) there is only ``main``."""

    ramp_up: RampBlock
    main: RampBlock
    ramp_down: RampBlock
    repeats: int

    def unrolled(self) -> Iterator[Row]:
        """The columns of all blocks in the order in which they run."""
        for block, times in ((self.ramp_up, 1), (self.main, self.repeats), (self.ramp_down, 1)):
            yield from list(zip(*block, strict=True)) * times


def ramped_schedule(stages: int, offsets: Sequence[int], count: int) -> RampedSchedule:
    """The blocks of ``count`` micro-batches (a multiple of the rows) over ``stages`` scheduled stages."""
    full: list[tuple[int, ...]] = [tuple((slot - offset) % stages for slot in range(stages)) for offset in offsets]
    rounds = count // len(offsets)
    if len(offsets) == 1:
        return RampedSchedule((), tuple(full), (), rounds)
    rows = list(zip(full, offsets, strict=True))
    up = tuple(tuple(None if at < offset else row[at] for at in range(stages)) for row, offset in rows)
    down = tuple(tuple(None if at >= offset else row[at] for at in range(stages)) for row, offset in rows)
    return RampedSchedule(up, tuple(full), down, rounds - 1)


def flattened(block: RampBlock, *, filler: str = ".", descending: bool = False) -> str:
    """A block as one text, slot by slot; ``descending`` lists a slot last stage first, as the grouped main does."""
    columns = list(zip(*block, strict=True))
    if descending:
        columns = [
            tuple(sorted(column, key=lambda stage: -1 if stage is None else stage)[::-1]) for column in columns
        ]
    return " ".join(filler if stage is None else str(stage) for column in columns for stage in column)
