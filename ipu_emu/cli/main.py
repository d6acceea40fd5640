"""main: the ``ipu-emu`` command and its errors. Commands import what is slow to import only when they run."""

from __future__ import annotations

from typing import Any

import click

from ipu_emu.cli.commands.clock_command import clock
from ipu_emu.cli.commands.compile_command import compile
from ipu_emu.cli.commands.hostio_command import hostio
from ipu_emu.cli.commands.info_command import info
from ipu_emu.cli.commands.memory_command import memory
from ipu_emu.cli.commands.models_command import models
from ipu_emu.cli.commands.schedule_command import schedule
from ipu_emu.errors import EmulatorError
from popdist_py.errors import PopdistError

__all__ = ["main"]

_HELP = """Look at emulated IPUs without running anything: the systems there are, how a pipeline is scheduled, what
well-known models weigh, where a model lies in memory and what it would take on IPUs.

\b
Start here
  ipu-emu info                                             the Pod that programs get, and who uses its IPUs
  ipu-emu schedule --kind grouped --stages 4 --count 8     which stage works when
  ipu-emu models                                           parameters, FLOPs and activations of known models
  ipu-emu memory mlp                                       where the tensors of a model lie
  ipu-emu clock resnet50 --system bow-pod16                what a step would take on IPUs
  ipu-emu compile mlp --stop-after lower                   what each pass of the compiler makes of a model
  ipu-emu hostio train.py                                  whether the host feeds a program fast enough

All times are modelled: they say what IPUs would take, not what this machine takes (hostio
measures that). IPU_EMU_SYSTEM names the system.
"""


class _Mistake(click.ClickException):
    """What a user asked for and cannot have."""

    exit_code = 2


class _Commands(click.Group):
    """Commands whose mistakes are one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (EmulatorError, PopdistError) as error:
            raise _Mistake(str(error.args[0])) from None


@click.group(
    cls=_Commands,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
def main() -> None:
    """Pick a command."""


for _command in (clock, compile, hostio, info, memory, models, schedule):
    main.add_command(_command)
