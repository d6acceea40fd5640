"""hostio command: ``ipu-emu hostio PROGRAM`` measures whether, and why, host I/O limits a program."""

from __future__ import annotations

import os
from pathlib import Path

import click

import popdist_py
from ipu_emu.errors import EmulatorError
from popdist_py.dependent_program import sigterm_as_exit

_HELP = """Run PROGRAM with three kinds of step data on 1, 2, 4 ... instances, and report what limits it.

\b
  real        unchanged: the data of the program
  generated   random data, generated once and transferred in every step: no preparation
  synthetic   nothing is prepared or moved for a step: the upper limit of the throughput

PROGRAM takes its replicas from poprun-py. It reads its data from an ipu_emu.hostio.Feed or from an infeed of a
TensorFlow program, or passes it to session.run as a PyStepIO or PyStepIOCallback; the time between runs then counts
as preparation. Each run ends after --steps timed steps. Times are measured on this machine. In a
poprun-py job, the first instance runs the measurements, on up to as many instances as the job has.

\b
  ipu-emu hostio train.py
  ipu-emu hostio --instances 1,2 --steps 200 --html feeds.html train.py --batch-size 32
"""


@click.command(
    "hostio",
    help=_HELP,
    short_help="Find out whether host I/O limits a program.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--instances",
    default="",
    metavar="N,...",
    help="Numbers of instances.  [default: 1, 2, 4 ... up to the CPUs or the job]",
)
@click.option(
    "--replicas-per-instance",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Replicas of each instance.",
)
@click.option("--steps", type=click.IntRange(1), default=50, show_default=True, help="Timed steps per run.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=600.0, show_default=True, help="Seconds allowed for one run."
)
@click.option("--json", type=click.Path(path_type=Path), help="Write all measurements to this file.")
@click.option("--png", type=click.Path(path_type=Path), help="Draw the throughput (needs matplotlib).")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with table, chart and advice.")
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def hostio(
    instances: str,
    replicas_per_instance: int,
    steps: int,
    timeout: float,
    json: Path | None,
    png: Path | None,
    html: Path | None,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run the program, print and write the results."""
    from gcl.drawing.units import counted
    from ipu_emu.cli.output.hostio_report import check_png, html_page, json_file, png_picture, rate
    from ipu_emu.cli.output.printing import check_outputs, say, write
    from ipu_emu.hostio.probe.bottleneck_analysis import advice, table
    from ipu_emu.hostio.probe.program_runs import MeasuredProgram, counts_of, measure

    if popdist_py.getInstanceIndex():
        return
    if not os.path.isfile(program):
        raise EmulatorError(f"{program} is not a file; name the program to measure")
    check_outputs(json=json, png=png, html=html)
    if png:
        check_png()
    measured = MeasuredProgram((program, *arguments), replicas_per_instance, steps, timeout)
    runs = []
    with sigterm_as_exit():
        for run in measure(measured, counts_of(instances)):
            click.echo(f"{counted(run.instances, 'instance')}, {run.mode:9}  {rate(run):>12}")
            runs.append(run)
    said = advice(runs)
    say("\n" + table(runs) + "\n\n" + "\n".join(said))
    for path, content in ((json, json_file), (png, png_picture), (html, html_page)):
        if path:
            write(path, content(runs, said))
