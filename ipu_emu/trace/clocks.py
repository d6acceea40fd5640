"""Clocks: converts the times of every process of a run to the clock of its first instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.trace.process_trace import ProcessTrace


@dataclass(frozen=True)
class Clock:
    """Offsets in nanoseconds to add to the times of a host, measured at some of these times.

    Between two measurements they are interpolated linearly, since clocks drift; before the first and after the last
    they are constant. ``error``: the bound of their error.
    """

    times: Sequence[int]
    offsets: Sequence[int]
    error: int

    @property
    def offset(self) -> int:
        """The offset of the earliest times."""
        return self.offsets[0]

    def aligned(self, times: NDArray[np.int64], start: int = 0) -> NDArray[np.int64]:
        """These times of the host on the common clock, since ``start``."""
        common: NDArray[np.int64] = times + (self.offset - start)
        if len(self.times) > 1:
            changes = np.array(self.offsets) - self.offset
            common += np.rint(np.interp(times, self.times, changes)).astype(np.int64)
        return common


def clocks(traces: Sequence[ProcessTrace]) -> list[Clock]:
    """The clock of each trace.

    Processes of one boot share a clock. Others are shifted by the offsets that instances measured against instance 0
    when they started and ended, or without these by the difference of their hosts' real-time clocks.
    """
    boots = [str(process.process.get("boot", "")) for process in traces]
    measured: dict[str, list[tuple[int, int, int]]] = {}
    for trace, boot in zip(traces, boots, strict=True):
        for entry in trace.facts.get("clock_offsets", []):
            offset = int(entry["at_ns"]), int(entry["offset_ns"]), int(entry["error_ns"])
            measured.setdefault(boot, []).append(offset)
    reference = next((boot for boot, offsets in measured.items() if offsets[0][1:] == (0, 0)), boots[0])
    real = {boot: _real_time(trace) for trace, boot in zip(traces, boots, strict=True)}
    return [_clock(measured.get(boot, []), real[boot], real[reference], here=boot == reference) for boot in boots]


def _clock(
    measured: Sequence[tuple[int, int, int]], own: tuple[int, int], other: tuple[int, int], *, here: bool
) -> Clock:
    if here:
        return Clock([0], [0], 0)
    if not measured:
        return Clock([0], [own[0] - other[0]], own[1] + other[1])
    times, offsets, errors = zip(*sorted(measured), strict=True)
    return Clock(times, offsets, max(errors))


def _real_time(trace: ProcessTrace) -> tuple[int, int]:
    """Real time minus monotonic time, and its error, nanoseconds."""
    clock: Mapping[str, Any] = trace.process.get("clock", {})
    return int(clock.get("realtime_ns", 0)) - int(clock.get("monotonic_ns", 0)), int(clock.get("error_ns", 0))
