"""Schedule: one way to order the stages of a pipeline, a row of a table: its slots, stages, FIFOs and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules.grouped import grouped, grouped_offsets, grouped_stash, overlapped, popart
from ipu_emu.program.schedules.interleaved import (
    interleaved,
    interleaved_offsets,
    interleaved_seconds,
    interleaved_stash,
)
from ipu_emu.program.schedules.sequential import sequential, sequential_offsets, sequential_stash, serialised
from ipu_emu.program.schedules.stages import Mapping, Stage, framework_stages, ipus_by_stage, popart_stages
from ipu_emu.program.schedules.task import Slot, Task, TaskType
from popdist_py.messages.suggestion import did_you_mean


@dataclass(frozen=True)
class ScheduleDefinition:
    """``offsets`` are the starts of the micro-batches in flight; ``stash`` is the FIFO of a forward stage.

    ``overlapped`` are the slots with I/O tiles, ``serialised`` those with batch serialisation, if there are any.
    ``seconds`` of a training batch are for uneven tasks; without, all slots are as long as the longest one. With
    ``takes_turns`` the IPUs of a replica never work at the same time.
    """

    summary: str
    slots: Callable[[Sequence[Stage], int], Iterator[Slot]]
    stages: Callable[[tuple[tuple[int, ...], ...], bool], tuple[Stage, ...]]
    offsets: Callable[[Sequence[Stage]], tuple[int, ...]]
    stash: Callable[[int, int], int]
    recompute: Callable[[Iterable[Slot], Sequence[Stage]], Iterator[Slot]]
    check: Callable[[int, int, bool], None]
    overlapped: Callable[[Sequence[Stage], int], Iterator[Slot]] | None = None
    serialised: Callable[[Sequence[Stage], int, int], Iterator[Slot]] | None = None
    seconds: Callable[[Sequence[tuple[Any, Any]], Any], Any] | None = None
    takes_turns: bool = False


def _multiple(count: int, unit: int, training: bool) -> None:
    if count < unit:
        raise EmulatorError(
            f"The number of iterations of the pipeline must be at least {unit}, but it is {count}. "
            f"Use a count of {unit}, {2 * unit}, {3 * unit}, ..."
        )
    if count % unit:
        below = count - count % unit
        raise EmulatorError(
            f"The number of iterations of the pipeline must be a multiple of {unit}, but it is {count}. "
            f"Use a count of {below} or {below + unit}"
        )


def _popart_depth(count: int, stages: int, training: bool) -> None:
    if count < stages:
        name = "gradient accumulation factor" if training else "batchesPerStep"
        raise EmulatorError(
            f"For pipelining, depth ({name}) must equal at least the number of pipeline stages ({stages})",
            note=f"It is {count}; use {stages} or more",
        )


def _ahead(slots: Iterable[Slot], stages: Sequence[Stage]) -> Iterator[Slot]:
    """Recompute in the slot before the backward, after that slot's other work (RecomputeThenBackpropagate).

    Grouped, N = 2, 4 micro-batches; r stands for the recomputation of stage 0
      slot    0   1     2       3         4       5     6
              0   1 0   2 1 0   3 2 1 0   3 2 1   3 2   3
                        r       r         r       r
    In ramp-down it takes the place of the forward of its stage.
    """
    for slot, following in pairwise(chain(slots, ((),))):
        yield slot + tuple(again for task in following for again in _again(task, stages))


def _inside(slots: Iterable[Slot], stages: Sequence[Stage]) -> Iterator[Slot]:
    """Recompute right before the backward, in the same slot (RecomputeAndBackpropagateInterleaved, PopART)."""
    for slot in slots:
        yield tuple(part for task in slot for part in (*_again(task, stages), task))


def _again(task: Task, stages: Sequence[Stage]) -> Slot:
    """The forward that is recomputed for a backward task, if any; not that of the last forward stage, whose backward
    follows at once.
    """
    stage = stages[task.stage]
    last = max(other.forward for other in stages)
    if stage.what is not TaskType.BACKWARD or stage.forward == last:
        return ()
    return (Task(task.ipu, stage.forward, task.micro_batch, TaskType.RECOMPUTE),)


SCHEDULES = {
    "grouped": ScheduleDefinition(
        "each IPU runs a forward and a backward task per slot; 2N micro-batches in flight",
        *(grouped, framework_stages, grouped_offsets, grouped_stash, _ahead, _multiple),
        overlapped=overlapped,
    ),
    "interleaved": ScheduleDefinition(
        "forward and backward tasks alternate; N micro-batches in flight; also known as 1F1B",
        *(interleaved, framework_stages, interleaved_offsets, interleaved_stash, _ahead, _multiple),
        seconds=interleaved_seconds,
    ),
    "sequential": ScheduleDefinition(
        "one stage at a time, as with sharding",
        *(sequential, framework_stages, sequential_offsets, sequential_stash, _inside, _multiple),
        serialised=serialised,
        takes_turns=True,
    ),
    "popart": ScheduleDefinition(
        "as grouped, with the last forward stage and its backward as one task",
        *(popart, popart_stages, grouped_offsets, grouped_stash, _inside, _popart_depth),
    ),
}


def schedule(
    kind: str,
    stages: int,
    count: int,
    *,
    training: bool,
    mapping: Mapping | None = None,
    recompute: bool = False,
    io_tiles: bool = False,
    iterations: int = 1,
) -> Iterator[Slot]:
    """The slots of ``count`` micro-batches through ``stages`` forward stages; raise EmulatorError before the first.

    ``mapping`` gives the IPU of each forward stage. ``recompute`` adds the tasks that compute the activations of
    a forward stage (``Task.stage``) again, ``io_tiles`` those that load and store while stages compute. With
    batch serialisation a stage processes ``iterations`` micro-batches in a row, ``count * iterations`` in total.
    """
    entry = _schedule_named(kind)
    if io_tiles and entry.overlapped is None:
        able = " or ".join(name for name, other in SCHEDULES.items() if other.overlapped)
        raise EmulatorError(f"I/O tiles need the {able} schedule, found {kind}")
    if iterations != 1 and entry.serialised is None:
        able = " or ".join(name for name, other in SCHEDULES.items() if other.serialised)
        raise EmulatorError(
            f"Batch serialization is only supported with the `{able.capitalize()}` schedule. "
            f"This one is {kind}; use {able}"
        )
    if iterations != 1 and mapping is None:
        mapping = [0] * stages
    all_stages = scheduled_stages(kind, stages, training=training, mapping=mapping)
    if io_tiles and entry.overlapped:
        slots = entry.overlapped(all_stages, count)
    elif iterations != 1 and entry.serialised:
        slots = entry.serialised(all_stages, count, iterations)
    else:
        entry.check(count, len(entry.offsets(all_stages)), training)
        slots = entry.slots(all_stages, count)
    return entry.recompute(slots, all_stages) if recompute else slots


def scheduled_stages(kind: str, stages: int, *, training: bool, mapping: Mapping | None = None) -> tuple[Stage, ...]:
    """The scheduled stages of a pipeline of ``stages`` forward stages."""
    return _schedule_named(kind).stages(ipus_by_stage(stages, mapping), training)


def in_flight(kind: str, stages: int, *, training: bool, mapping: Mapping | None = None) -> int:
    """Micro-batches in the pipeline at a time; counts of the framework schedules must be multiples of it."""
    return len(_schedule_named(kind).offsets(scheduled_stages(kind, stages, training=training, mapping=mapping)))


def fifo_depth(kind: str, stages: int, stage: int, training: bool) -> int:
    """The number of later micro-batches that pass while a forward value of ``stage`` waits for its backward."""
    if not 0 <= stage < stages:
        raise EmulatorError(f"there is no forward stage {stage}; {stages} stages are numbered 0 to {stages - 1}")
    return _schedule_named(kind).stash(stages, stage) if training else 0


def depth(kind: str, stages: int, stage: int, training: bool) -> int:
    """Copies of a forward value of ``stage`` that are kept for its backward, the current one included."""
    return fifo_depth(kind, stages, stage, training) + 1


def _schedule_named(name: str) -> ScheduleDefinition:
    if name not in SCHEDULES:
        raise EmulatorError(
            f"there is no schedule '{name}'; use {', '.join(SCHEDULES)}{did_you_mean(name, SCHEDULES)}"
        )
    return SCHEDULES[name]
