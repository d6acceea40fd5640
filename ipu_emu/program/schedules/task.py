"""Task: the work of one IPU in one slot of a pipeline; a slot is its tasks in program order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: The IPU number that means all IPUs of a replica.
ALL_IPUS = -1


class TaskType(StrEnum):
    """The kind of work of a task."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "forward+backward"
    RECOMPUTE = "recompute"
    LOAD = "load"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Task:
    """``stage`` numbers scheduled stages: forward ones, then backward ones; ``ipu`` may be ALL_IPUS."""

    ipu: int
    stage: int
    micro_batch: int
    what: TaskType

    def __str__(self) -> str:
        return f"{self.what} of stage {self.stage}, micro-batch {self.micro_batch}, on IPU {self.ipu}"


Slot = tuple[Task, ...]
