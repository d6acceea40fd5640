"""interleaved: an IPU does a forward or a backward in each slot, alternating; also known as 1F1B."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules.stages import Stage, rotation
from ipu_emu.program.schedules.task import ALL_IPUS, Slot, TaskType


def interleaved(stages: Sequence[Stage], count: int) -> Iterator[Slot]:
    """Stage k of micro-batch j runs in slot 2j + k in training, j + k in inference; N micro-batches in flight.

    N = 2 in training (stages 0, 1 forward, 2, 3 backward), 4 micro-batches: the stage that works on each
      slot            0  1  2  3  4  5  6  7  8  9
      micro-batch 0   0  1  2  3
      micro-batch 1         0  1  2  3
      micro-batch 2               0  1  2  3
      micro-batch 3                     0  1  2  3
    """
    yield from rotation(stages, count, interleaved_offsets(stages))


def interleaved_offsets(stages: Sequence[Stage]) -> tuple[int, ...]:
    """The starts, chosen greedily, such that no IPU ever has two stages in one slot."""
    _refuse_shared(stages)
    length = len(stages)
    accepted = [0]
    for start in range(1, length):
        if not any(_collide(stages, start, other) for other in accepted):
            accepted.append(start)
    return tuple(accepted)


def _collide(stages: Sequence[Stage], start: int, other: int) -> bool:
    """Whether micro-batches with these starts ever need the same IPU in the same slot."""
    length = len(stages)
    pairs = ((stages[(at - start) % length].ipus, stages[(at - other) % length].ipus) for at in range(length))
    return any({ALL_IPUS} & {*first, *second} or set(first) & set(second) for first, second in pairs)


def _refuse_shared(stages: Sequence[Stage]) -> None:
    """Raise EmulatorError if stages share an IPU in training."""
    forward = [stage for stage in stages if stage.what is TaskType.FORWARD]
    ipus = sorted(ipu for stage in forward for ipu in stage.ipus)
    shared = sorted({first for first, second in pairwise(ipus) if first == second})
    if shared and len(forward) < len(stages):
        raise EmulatorError(
            "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same "
            f"device for training graphs. Stages share IPU {', '.join(map(str, shared))}; give each stage its own "
            "IPU, or use the Grouped or Sequential schedule"
        )


def interleaved_stash(stages: int, stage: int) -> int:
    """The number of micro-batches that pass ``stage`` before the backward of the first."""
    return stages - 1 - stage


def interleaved_seconds(tasks: Sequence[tuple[Any, Any]], count: Any) -> Any:
    """Seconds of ``count`` micro-batches with the interleaved schedule; ``tasks``: forward and backward of each IPU.

    In a slot either the even stages or the odd ones work, and the longest task counts. N IPUs have 2 N stages:

        slots 0 .. 2 N - 3     filling       stages up to the number of the slot
        then                   two slots for each of count - N + 1 micro-batches
        the last 2 N - 2       draining      stages from 2, 3, ... on

    A batch of fewer than N micro-batches, which no program has, is extrapolated.
    """
    stages = [forward for forward, _ in tasks] + [backward for _, backward in reversed(tasks)]
    filling, draining = list(stages), list(stages)
    for slot in range(2, len(stages)):
        filling[slot] = np.maximum(filling[slot], filling[slot - 2])
    for slot in reversed(range(len(stages) - 2)):
        draining[slot] = np.maximum(draining[slot], draining[slot + 2])
    period = filling[-1] + filling[-2]
    return sum(filling[:-2]) + sum(draining[2:]) + (count - len(tasks) + 1) * period
