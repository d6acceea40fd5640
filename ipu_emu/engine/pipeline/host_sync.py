"""HostSync: when the host transfers the data of a pipeline: before a slot, during it, or after it.

One thread serves the feed, and the sync pattern decides which IPUs wait for a transfer with the host: while one IPU
of a sync group computes, the host cannot serve the others. For inference with stage 0 on IPU 0 and stage 1 on IPU 1:

    slot                           0        1        2        3
    IPU 0                          0        0        0
    IPU 1                                   1        1        1
    SinglePipeline, during         load 1   load 2   store 1  store 2
    Full                           load 1   -        store 1  store 2
      between slots                         load 2            at the end store 3

The host writes to other buffers than those that the IPU works on, so an IPU does not wait for its own transfers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ipu_emu.hardware.sync_groups import SyncConfiguration, groups

#: (stage, micro-batch), in program order.
Tasks = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class HostSync:
    """The tasks of a slot, and the tasks whose data is transferred before, during and after it."""

    tasks: Tasks
    given_before: Tasks
    given_beside: Tasks
    taken_beside: Tasks
    taken_after: Tasks


def sync_partners(ipus: int, pattern: SyncConfiguration) -> dict[int, set[int]]:
    """The IPUs that cannot compute while the host serves an IPU, in a replica of ``ipus`` IPUs."""
    kind = {"gs1": pattern.gs1, "gs2": pattern.gs2}[pattern.host]
    return {ipu: set(group) - {ipu} for group in groups(kind, range(ipus), ipus) for ipu in group}


def host_syncs(slots: Sequence[Tasks], ipus: Sequence[int], pattern: SyncConfiguration) -> Iterator[HostSync]:
    """One for each slot; ``ipus`` has the IPU of each stage."""
    waiting = sync_partners(1 + max(ipus), pattern)

    def served(tasks: Tasks, slot: Tasks, *, overlapped: bool) -> Tasks:
        """The ``tasks`` whose data can be transferred during ``slot`` (``overlapped``), or the others."""
        busy = {ipus[stage] for stage, _ in slot}
        return tuple(task for task in tasks if (not waiting[ipus[task[0]]] & busy) is overlapped)

    earlier, later = [(), *slots[:-1]], [*slots[1:], ()]
    for number, (before, slot, after) in enumerate(zip(earlier, slots, later, strict=True)):
        first, last = number == 0, number == len(slots) - 1
        yield HostSync(
            slot,
            given_before=slot if first else served(slot, before, overlapped=False),
            given_beside=served(after, slot, overlapped=True),
            taken_beside=served(before, slot, overlapped=True),
            taken_after=slot if last else served(slot, after, overlapped=False),
        )
