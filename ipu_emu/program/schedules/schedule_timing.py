"""Timing: the duration of a schedule for given times of its stages, and the fraction of it that each IPU is busy.

Copies between IPUs and the weight update are not included. The length of a slot depends on the barrier:

    one     each slot lasts as long as its busiest IPU
    halves  the same, but forwards, recomputations and backwards of a slot wait for each other
    none    an IPU continues as soon as its inputs are ready
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules.schedule_table import SCHEDULES, scheduled_stages
from ipu_emu.program.schedules.task import ALL_IPUS, Slot, Task, TaskType

#: Transfers of I/O tiles, which overlap with compute.
_TRANSFERS = (TaskType.LOAD, TaskType.STORE)


class Barrier(StrEnum):
    """Which IPUs wait for each other at the end of a task."""

    ONE = "one"
    HALVES = "halves"
    NONE = "none"


@dataclass(frozen=True)
class StageTimes:
    """Time of each forward stage, and of its backward, in any unit; raise EmulatorError for impossible times."""

    forward: tuple[float, ...]
    backward: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.forward) != len(self.backward):
            raise EmulatorError(
                f"{len(self.forward)} forward times and {len(self.backward)} backward times were given; "
                "give one of each per stage"
            )
        times = (*self.forward, *self.backward)
        if not all(0 <= time < float("inf") for time in times) or not any(times):
            raise EmulatorError("the time of a stage must be at least 0, and that of some stage above 0")

    @classmethod
    def even(cls, stages: int) -> StageTimes:
        """Equal stages, whose backward takes twice as long as the forward."""
        return cls((1.0,) * stages, (2.0,) * stages)

    def of(self, task: Task, scheduled: int) -> float:
        """The time of a task of a schedule with ``stages`` scheduled stages."""
        forward = min(task.stage, scheduled - 1 - task.stage) if task.stage >= len(self.forward) else task.stage
        parts = {
            TaskType.FORWARD: self.forward[forward],
            TaskType.RECOMPUTE: self.forward[forward],
            TaskType.BACKWARD: self.backward[forward],
            TaskType.BOTH: self.forward[forward] + self.backward[forward],
        }
        return parts.get(task.what, 0.0)


@dataclass(frozen=True)
class ScheduleTiming:
    """The time of one batch, and the fraction of it that each IPU spends on forwards and backwards."""

    total: float
    useful: Mapping[int, float]

    @property
    def efficiency(self) -> float:
        """Useful time over total time, of all IPUs."""
        return sum(self.useful.values()) / (len(self.useful) * self.total) if self.total else 1.0


@dataclass(frozen=True)
class TimedTask:
    """A task of slot ``slot``, with its start and end; an overlapped transfer lasts as long as its slot."""

    task: Task
    slot: int
    start: float
    end: float


def timing(slots: Iterable[Slot], times: StageTimes, barrier: Barrier = Barrier.ONE) -> ScheduleTiming:
    """The timing of ``slots``."""
    drawn = list(slots)
    scheduled = _scheduled(drawn)
    useful: dict[int, float] = defaultdict(float)
    everybody = {task.ipu for slot in drawn for task in slot}
    for task in (task for slot in drawn for task in slot):
        for ipu in _ipus(task, everybody):
            useful[ipu] += times.of(task, scheduled) * (task.what is not TaskType.RECOMPUTE)
    return ScheduleTiming(max((entry.end for entry in timed(drawn, times, barrier)), default=0.0), dict(useful))


def timed(slots: Sequence[Slot], times: StageTimes, barrier: Barrier = Barrier.ONE) -> list[TimedTask]:
    """When every task starts and ends."""
    if barrier is Barrier.NONE:
        return _without_barrier(slots, times)
    entries, now, scheduled = list[TimedTask](), 0.0, _scheduled(slots)
    for number, slot in enumerate(slots):
        begun = now
        for part in _parts(slot, barrier):
            tasks = _of_part(part, times, scheduled, number, now)
            now = max((entry.end for entry in tasks), default=now)
            entries += tasks
        entries += [TimedTask(task, number, begun, now) for task in slot if task.what in _TRANSFERS]
    return entries


def _scheduled(slots: Sequence[Slot]) -> int:
    """The number of scheduled stages."""
    return 1 + max((task.stage for slot in slots for task in slot), default=0)


def _parts(slot: Slot, barrier: Barrier) -> list[list[Task]]:
    """The tasks that compute, in parts that wait for each other."""
    computing = [task for task in slot if task.what not in _TRANSFERS]
    if barrier is Barrier.ONE:
        return [computing]
    return [[task for task in computing if task.what is work] for work in TaskType]


def _of_part(part: Sequence[Task], times: StageTimes, scheduled: int, slot: int, begun: float) -> list[TimedTask]:
    """Tasks of one IPU follow each other; a task on all IPUs follows those of every IPU."""
    entries, free = list[TimedTask](), dict[int, float]()
    for task in sorted(part, key=lambda task: task.ipu == ALL_IPUS):
        start = max(free.values(), default=begun) if task.ipu == ALL_IPUS else free.get(task.ipu, begun)
        free[task.ipu] = start + times.of(task, scheduled)
        entries.append(TimedTask(task, slot, start, free[task.ipu]))
    return entries


def _without_barrier(slots: Sequence[Slot], times: StageTimes) -> list[TimedTask]:
    """Each task starts when its IPU is free and the previous stage is done with the same micro-batch."""
    scheduled, entries = _scheduled(slots), list[TimedTask]()
    everybody = {task.ipu for slot in slots for task in slot}
    free: dict[int, float] = dict.fromkeys(everybody, 0.0)
    done: dict[tuple[int, int], float] = defaultdict(float)
    for number, task in ((number, task) for number, slot in enumerate(slots) for task in slot):
        ipus = _ipus(task, everybody)
        ready = 0.0 if task.what is TaskType.RECOMPUTE else done[task.stage - 1, task.micro_batch]
        start = max(ready, *(free[ipu] for ipu in ipus))
        end = start + times.of(task, scheduled)
        entries.append(TimedTask(task, number, start, end))
        free |= dict.fromkeys(ipus, end)
        if task.what is not TaskType.RECOMPUTE:
            done[task.stage, task.micro_batch] = max(done[task.stage, task.micro_batch], end)
    return entries


def _ipus(task: Task, everybody: set[int]) -> set[int]:
    """The IPUs that run a task."""
    return (everybody - {ALL_IPUS} or {ALL_IPUS}) if task.ipu == ALL_IPUS else {task.ipu}


@lru_cache(maxsize=4096)  # pure
def ramp_slots(schedule: str, stages: int, count: int) -> float:
    """Slots of training in addition to one for each of ``count`` micro-batches, if all stages are even.

    A long batch repeats the slots of a shorter one.
    """
    drawn = max(2 * stages, min(count, 6 * stages))
    times = StageTimes.even(stages)
    slots = SCHEDULES[schedule].slots(scheduled_stages(schedule, stages, training=True), drawn)
    period = times.forward[0] + times.backward[0]
    first = timing(slots, times).total / period
    slots = SCHEDULES[schedule].slots(scheduled_stages(schedule, stages, training=True), 2 * drawn)
    further = timing(slots, times).total / period - first
    return first - drawn + (further / drawn - 1) * (count - drawn)
