"""Cycles: the modelled cycles of a step on IPUs, and the profile of its program."""

from __future__ import annotations

from ipu_emu.hardware import Device, DeviceKind
from ipu_emu.poptorch.executor.device_program import DeviceProgram
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.program.clock.program_record import ProgramRecord

__all__ = ["cycles_of", "profile"]

_TILES = 1472


def cycles_of(program: DeviceProgram) -> int:
    """Return the clock cycles of all batches of a step, which are computed, not measured."""
    return _modelled(program).cycles()


def profile(program: DeviceProgram, name: str) -> None:
    """Write the profile of a program, if this process records a trace: next to its file, or else to the trace."""
    o = program.options
    offset = o.Distributed.processId * int(o.replication_factor)
    program.record = ProgramRecord.of(_modelled(program), name, executable=lambda: program.file, offset=offset)


def _modelled(program: DeviceProgram) -> ModelledStep:
    o = program.options
    replicas = int(o.replication_factor) * o.Distributed.numProcesses
    ipus = program.compiled.ipus * replicas
    device = Device(DeviceKind.IPU, 0, ipus, _TILES, "ipu2")
    return ModelledStep(program.compiled.executable, device, replicas, program.compiled.ipus)
