"""Main: the ``ipu-emu`` command and its errors. Commands import slow modules only when they run."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

from gcl.drawing.terminal_help import FittedContext
from ipu_emu.cli.commands.calibrate_command import calibrate
from ipu_emu.cli.commands.clock_command import clock
from ipu_emu.cli.commands.compile_command import compile
from ipu_emu.cli.commands.estimate_command import estimate
from ipu_emu.cli.commands.hostio_command import hostio
from ipu_emu.cli.commands.info_command import info
from ipu_emu.cli.commands.memory_command import memory
from ipu_emu.cli.commands.models_command import models
from ipu_emu.cli.commands.predict_command import predict
from ipu_emu.cli.commands.report_command import report
from ipu_emu.cli.commands.scale_command import scale
from ipu_emu.cli.commands.schedule_command import schedule
from ipu_emu.errors import EmulatorError
from popdist_py.errors import PopdistError
from popdist_py.messages.short_commands import ShortMessages
from popdist_py.messages.short_message import short_message

_HELP = """Inspect emulated IPUs without running a program: systems, pipeline schedules, the size of known models,
their memory on each IPU and their modelled time on IPUs.

\b
Start here
  ipu-emu info                                             the system that programs get, and who uses its IPUs
  ipu-emu schedule --kind grouped --stages 4 --count 8     what each stage does in each slot
  ipu-emu models                                           parameters, FLOPs and activations of models
  ipu-emu memory mlp                                       the memory of a model on each IPU
  ipu-emu clock resnet50 --system bow-pod16                the modelled time of a training step
  ipu-emu predict resnet50 --replicas 16                   a job on a Pod, calibrated against published results
  ipu-emu scale resnet50 --sizes 16..65536                 the same on increasing numbers of IPUs
  ipu-emu scale --run -- python train.py                   how a program scales on this machine, and why
  ipu-emu estimate --constant 0.5 --compute 4              closed formulas, with their results
  ipu-emu calibrate rows.csv                               a calibration with your own measurements
  ipu-emu compile mlp --stop-after lower                   the result of a compiler pass
  ipu-emu hostio train.py                                  whether host I/O limits a program
  ipu-emu report DIR                                       what a traced run spent its time on

Times are modelled (computed for real IPUs), except that hostio, report and scale --run show measured times.
IPU_EMU_SYSTEM selects the system.
"""


_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


class _UserError(click.ClickException):
    """A mistake of the user."""

    exit_code = 2


class _Commands(ShortMessages, click.Group):
    """A group of commands that report user errors in one message, with exit code 2."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command; a full stdout ends it with one message, a closed stdout is ignored."""
        if sys.stdout is None:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        try:
            try:
                return super().main(*args, **extra)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if error.filename is not None or error.errno not in _CANNOT_WRITE:
                raise
            if sys.stdout is sys.__stdout__:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for Python's flush at exit
            if error.errno != errno.EPIPE:
                click.echo(f"Error: the output cannot be written: {error.strerror}", err=True)
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any("\0" in word for word in args):  # possible from Python, not from a shell
            raise click.UsageError("a word of the command line contains a NUL character, which no name has", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (EmulatorError, PopdistError) as error:
            raise _UserError(short_message(str(error.args[0]))) from None
        except KeyboardInterrupt:
            click.echo("\nAborted!", err=True)
            raise click.exceptions.Exit(130) from None


@click.group(
    cls=_Commands,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="poprun-py", prog_name="ipu-emu", message="%(prog)s %(version)s")
def main() -> None:
    """Select a command."""


for _command in (calibrate, clock, compile, estimate, hostio, info, memory, models, predict, report, scale, schedule):
    main.add_command(_command)
for _command in (main, *main.commands.values()):
    _command.context_class = FittedContext
