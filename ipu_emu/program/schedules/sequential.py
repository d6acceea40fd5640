"""sequential: one stage at a time, one micro-batch in flight, as in sharding; also with batch serialisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules.stages import Stage, rotation
from ipu_emu.program.schedules.task import ALL_IPUS, Slot


def sequential(stages: Sequence[Stage], count: int) -> Iterator[Slot]:
    """Stage k of micro-batch j runs in slot j S + k: count S slots.

    N = 2 in training, 2 micro-batches: the stage that works on each
      slot            0  1  2  3  4  5  6  7
      micro-batch 0   0  1  2  3
      micro-batch 1               0  1  2  3
    """
    yield from rotation(stages, count, sequential_offsets(stages))


def sequential_offsets(stages: Sequence[Stage]) -> tuple[int, ...]:
    """A micro-batch starts when the previous one has left the last stage."""
    return (0,)


def sequential_stash(stages: int, stage: int) -> int:
    """No forward value waits for another micro-batch."""
    return 0


def serialised(stages: Sequence[Stage], count: int, iterations: int) -> Iterator[Slot]:
    """``count * iterations`` micro-batches on one IPU, ``iterations`` of them per slot.

    N = 2, inference, count 2, 3 iterations
      slot    0       1       2       3
      stage   0       1       0       1
      with    0 1 2   0 1 2   3 4 5   3 4 5
    """
    if iterations < 1 or count < 1:
        raise EmulatorError(f"{count} x {iterations} micro-batches are not possible; both numbers must be at least 1")
    used = sorted({ipu for stage in stages for ipu in stage.ipus})
    if len(used) > 1 or used == [ALL_IPUS]:
        raise EmulatorError(
            "When using batch serialization, all the pipeline stages need to be mapped to a single IPU. "
            f"They are mapped to {', '.join('all IPUs' if ipu == ALL_IPUS else f'IPU {ipu}' for ipu in used)}; "
            "map all of them to IPU 0"
        )
    return _serialised(stages, count, iterations)


def _serialised(stages: Sequence[Stage], count: int, iterations: int) -> Iterator[Slot]:
    for slot in sequential(stages, count):
        (task,) = slot
        first = task.micro_batch * iterations
        yield tuple(piece for part in range(iterations) for piece in stages[task.stage].tasks(first + part))
