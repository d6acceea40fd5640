"""serialised: the sequential schedule with batch serialisation: each stage loops over some micro-batches at once."""

from __future__ import annotations

from collections.abc import Iterator

from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules.sequential import sequential
from ipu_emu.program.schedules.stages import Mapping, framework_stages, ipus_by_stage
from ipu_emu.program.schedules.task import ALL_IPUS, Slot

__all__ = ["serialised"]


def serialised(
    stages: int, count: int, iterations: int, *, training: bool, mapping: Mapping | None = None
) -> Iterator[Slot]:
    """``count * iterations`` micro-batches on one IPU, ``iterations`` of them per slot.

    N = 2, inference, count 2, 3 iterations
      slot    0       1       2       3
      stage   0       1       0       1
      with    0 1 2   0 1 2   3 4 5   3 4 5
    """
    if iterations < 1 or count < 1:
        raise EmulatorError(f"{count} x {iterations} micro-batches were asked for; both numbers must be at least 1")
    ipus = ipus_by_stage(stages, [0] * stages if mapping is None else mapping)
    if len({ipu for entry in ipus for ipu in entry}) > 1 or ipus[0] == (ALL_IPUS,):
        raise EmulatorError(
            "When using batch serialization, all the pipeline stages need to be mapped to a single IPU. "
            f"The mapping is {[list(entry) if len(entry) > 1 else entry[0] for entry in ipus]}; use {[0] * stages}"
        )
    all_stages = framework_stages(ipus, training)
    for slot in sequential(all_stages, count):
        (task,) = slot
        first = task.micro_batch * iterations
        yield tuple(each for part in range(iterations) for each in all_stages[task.stage].tasks(first + part))
