"""Memory rate: the rate at which a process copies memory, which bounds collectives within its host."""

from __future__ import annotations

from time import perf_counter_ns

from popdist_py.trace.recorder import Recorder

#: The fact in a trace: GB/s.
MEMORY_RATE = "copy_gigabytes_per_second"
_COPIED, _TIMES = 16 << 20, 5


def record_memory_rate(recorder: Recorder) -> None:
    """Copy 16 MiB a few times and record the best rate; takes about 30 ms."""
    source, target = memoryview(b"\1" * _COPIED), memoryview(bytearray(_COPIED))
    nanoseconds = []
    for _ in range(_TIMES):
        begin = perf_counter_ns()
        target[:] = source
        nanoseconds.append(perf_counter_ns() - begin)
    recorder.define({MEMORY_RATE: _COPIED / min(nanoseconds)})
