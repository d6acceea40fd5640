"""Modelled: what a step of a session would take on IPUs, in seconds and in cycles; nothing of it is measured."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cached_property

from ipu_emu.clock import Machine, TimelineSegment, timeline
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import GENERATIONS, PATTERNS, System
from ipu_emu.popart.devices.device_manager import DeviceInfo
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.types.enums import Instrumentation
from ipu_emu.program.executable import Executable

__all__ = ["Modelled"]


class Modelled:
    """A step of ``executable`` on the IPUs of ``device``: all batches, on one replica of all that there are."""

    def __init__(
        self, executable: Executable, device: DeviceInfo, options: SessionOptions, ipus_per_replica: int
    ) -> None:
        self._executable, self._device, self._options = executable, device, options
        self._ipus_per_replica = ipus_per_replica

    @cached_property
    def machine(self) -> Machine:
        """The system that the environment names, or the smallest Pod of its kind where that is too small."""
        replicas, sync = self._options.getGlobalReplicationFactor(), PATTERNS[self._device.syncPattern.name]
        system = System.from_environ(os.environ)
        needed = replicas * (1 << (self._ipus_per_replica - 1).bit_length())
        if needed > system.ipus:
            system = System.pod(1 << (needed - 1).bit_length(), system.generation)
        kind = GENERATIONS.get(self._device.ipuVersion)
        if kind is not None:
            system = replace(system, generation=replace(kind, tiles=self._device.tilesPerIPU))
        tiles = self._options.numIOTiles
        return Machine(system, replicas, self._ipus_per_replica, sync=sync, io_tiles=tiles)

    @cached_property
    def timeline(self) -> TimelineSegment:
        return timeline(self._executable, self.machine)

    def seconds(self) -> dict[str, float]:
        """Busy seconds of all IPUs of a replica by kind, and in ``total`` what the step lasts."""
        return {kind.value: seconds for kind, seconds in self.timeline.by_category().items()} | {
            "total": self.timeline.seconds
        }

    def cycles(self, id: str = "") -> int:
        """Cycles of the step; ``id`` is "" for the outermost counter, inner_ipu_0, ... for the loops of an IPU.

        All counters count the same: an IPU that waits for others goes on counting.
        """
        if not self._options.instrumentWithHardwareCycleCounter:
            raise EmulatorError(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order to measure cycle "
                "count"
            )
        if id not in self._counters():
            raise EmulatorError(
                f"Invalid id for cycle counter, '{id}'. Make sure you have set "
                "SessionOption::hardwareInstrumentations correctly."
            )
        return round(self.timeline.seconds * self.machine.generation.clock)

    def _counters(self) -> list[str]:
        asked = {Instrumentation(kind) for kind in self._options.hardwareInstrumentations}
        inner = (
            [f"inner_ipu_{ipu}" for ipu in range(self._ipus_per_replica)] if Instrumentation.Inner in asked else []
        )
        return [*([""] if Instrumentation.Outer in asked else []), *inner]
