"""Cycles: the modelled cycles of a step on IPUs."""

from __future__ import annotations

from ipu_emu.hardware import Device, DeviceKind
from ipu_emu.poptorch.executor.device_program import DeviceProgram
from ipu_emu.program.clock.modelled_step import ModelledStep

__all__ = ["cycles_of"]

_TILES = 1472


def cycles_of(program: DeviceProgram) -> int:
    """Return the clock cycles of all batches of a step, which are computed, not measured."""
    o = program.options
    replicas = int(o.replication_factor) * o.Distributed.numProcesses
    ipus = program.compiled.ipus * replicas
    device = Device(DeviceKind.IPU, 0, ipus, _TILES, "ipu2")
    return ModelledStep(program.compiled.executable, device, replicas, program.compiled.ipus).cycles()
