"""ModelledStep: the modelled time of a step on IPUs, in seconds; none of it is measured."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property

from ipu_emu.hardware import GENERATIONS, PATTERNS, Device, SelectionOrder, System
from ipu_emu.program.clock.machine import ModelledMachine
from ipu_emu.program.clock.timeline import TimelineSegment, timeline
from ipu_emu.program.executable import Executable


@dataclass(frozen=True)
class ModelledStep:
    """A step (all batches) of ``executable`` on IPUs like those of ``device``, for one of ``replicas`` replicas.

    ``io_tiles`` of each IPU exchange data with the host while the others compute. ``order`` gives the positions of
    the IPUs of a replica on the ladder.
    """

    executable: Executable
    device: Device
    replicas: int
    ipus_per_replica: int
    io_tiles: int = 0
    order: SelectionOrder = SelectionOrder.ZIGZAG

    @cached_property
    def machine(self) -> ModelledMachine:
        """The system that the environment names, or if that is too small the smallest sufficient Pod of its kind."""
        system = System.from_environ(os.environ)
        needed = self.replicas * (1 << (self.ipus_per_replica - 1).bit_length())
        if needed > system.ipus:
            system = System.pod(1 << (needed - 1).bit_length(), system.generation)
        kind = GENERATIONS.get(self.device.version)
        if kind is not None:
            system = replace(system, generation=replace(kind, tiles=self.device.tiles_per_ipu))
        sync = PATTERNS[self.executable.sync]
        return ModelledMachine(
            system, self.replicas, self.ipus_per_replica, sync=sync, io_tiles=self.io_tiles, order=self.order
        )

    @cached_property
    def timeline(self) -> TimelineSegment:
        """The timeline of each IPU of the replica."""
        return timeline(self.executable, self.machine)

    def seconds(self) -> dict[str, float]:
        """Return the busy seconds of all IPUs of a replica by kind, and the time of the step as ``total``."""
        return {kind.value: seconds for kind, seconds in self.timeline.by_category().items()} | {
            "total": self.timeline.seconds
        }

    def cycles(self) -> int:
        """Return the clock cycles of the step."""
        return round(self.timeline.seconds * self.machine.generation.clock)
