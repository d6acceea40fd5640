"""cli: the ``ipu-emu`` command: systems, pipeline schedules, models, memory, modelled time, host I/O."""

from ipu_emu.cli.main import main

__all__ = ["main"]
