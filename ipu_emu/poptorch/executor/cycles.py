"""Cycles: the modelled cycles of a step on IPUs, and the profile of its program."""

from __future__ import annotations

from ipu_emu.hardware import Device, DeviceKind
from ipu_emu.poptorch.executor.device_program import DeviceProgram
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.program.clock.program_profile import record_profile

__all__ = ["cycles_of", "profile"]

_TILES = 1472


def cycles_of(program: DeviceProgram) -> int:
    """Return the clock cycles of all batches of a step, which are computed, not measured."""
    return _modelled(program).cycles()


def profile(program: DeviceProgram, name: str) -> None:
    """Write the profile of a program beside the trace of this process, if it records one; only the first process."""
    if program.options.Distributed.processId == 0:
        record_profile(_modelled(program), name)


def _modelled(program: DeviceProgram) -> ModelledStep:
    o = program.options
    replicas = int(o.replication_factor) * o.Distributed.numProcesses
    ipus = program.compiled.ipus * replicas
    device = Device(DeviceKind.IPU, 0, ipus, _TILES, "ipu2")
    return ModelledStep(program.compiled.executable, device, replicas, program.compiled.ipus)
