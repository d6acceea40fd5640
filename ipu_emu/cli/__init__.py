"""cli: ``ipu-emu``, the command that shows what the emulator knows: systems, schedules, models, memory, time."""

from ipu_emu.cli.main import main

__all__ = ["main"]
