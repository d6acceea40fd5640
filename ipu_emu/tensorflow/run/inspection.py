"""Inspection: whether a compiled program fits its IPUs, its report, and its modelled cycles."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ipu_emu.compiler.memory.memory_remedies import Remedies
from ipu_emu.compiler.memory.out_of_memory import check_memory
from ipu_emu.hardware import Device, DeviceKind, System
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.program.clock.program_record import ProgramRecord
from ipu_emu.program.executable import Executable
from ipu_emu.tensorflow.run.configured_system import DeviceShare
from popdist_py.files.atomic_write import replace_file

__all__ = ["check_fits", "cycles_of", "profile", "write_report"]


@dataclass(frozen=True)
class _Advice(Remedies):
    """The advice for users of TensorFlow."""

    def __str__(self) -> str:
        return (
            "Set IPUConfig.allow_recompute, use more pipeline stages or the Sequential schedule, offload with "
            "offload_weight_update_variables or offload_activations, or use a smaller mini-batch"
        )


def _device(share: DeviceShare) -> Device:
    system = System.from_environ(os.environ)
    return Device(DeviceKind.IPU, 0, share.ipus * share.local, system.tiles_per_ipu, system.version)


def check_fits(executable: Executable, share: DeviceShare) -> None:
    """Raise OutOfMemoryError for a program that needs more memory than an IPU has."""
    check_memory(executable, _device(share), remedies=lambda need: _Advice())


def write_report(executable: Executable, folder: str, name: str) -> None:
    """Write the program and its memory plan as text."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    replace_file(path / f"{name}.txt", str(executable).encode())


def cycles_of(executable: Executable, share: DeviceShare) -> int:
    """The modelled cycles of a run."""
    return _modelled(executable, share).cycles()


def profile(executable: Executable, share: DeviceShare, name: str, file: Path | None) -> ProgramRecord | None:
    """Write the profile of a program, if this process records a trace: next to its file, or else to the trace."""
    step = _modelled(executable, share)
    return ProgramRecord.of(step, name, executable=lambda: file, offset=share.offset)


def _modelled(executable: Executable, share: DeviceShare) -> ModelledStep:
    return ModelledStep(executable, _device(share), share.total, share.ipus)
