"""In process: a memory domain whose ranks are threads of one process."""

from __future__ import annotations

import os

import numpy as np

from gcl.transport.memory.memory_domain import MemoryDomain, control_bytes, core_cache_bytes
from gcl.transport.memory.process_vm import can_access_process
from gcl.transport.memory.segment import DEFAULT_BYTES, Segment, map_memory


def domains(ranks: int = 1, *, segment_bytes: int = DEFAULT_BYTES) -> list[MemoryDomain]:
    """One domain for each of ``ranks`` threads of this process."""
    control = np.zeros(control_bytes(ranks), np.uint8)
    memories = [map_memory(-1, segment_bytes) for _ in range(ranks)]
    segments = [Segment(memory) for memory in memories]
    arenas = [segment.address for segment in segments]
    return [
        MemoryDomain(
            rank=rank,
            control=control,
            memories=memories,
            arenas=arenas,
            segment=segments[rank],
            alive=lambda _: True,
            close=lambda: None,
            name="inprocess",
            cores=len(os.sched_getaffinity(0)),
            uses_process_vm=can_access_process(os.getpid(), control.ctypes.data),
            smallest=segment_bytes,
            core_cache=core_cache_bytes(),
        )
        for rank in range(ranks)
    ]
