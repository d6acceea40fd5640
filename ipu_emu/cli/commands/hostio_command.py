"""hostio: ``ipu-emu hostio PROGRAM``: whether the host feeds the IPUs fast enough, and if not, what limits it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

import popdist_py

__all__ = ["hostio"]

_HELP = """Run PROGRAM with its own feed in three cases, on 1, 2, 4 ... instances, and say what limits it.

\b
  real        the program as it is
  generated   random data, made once: what is left out is preparation
  synthetic   nothing is read or moved for a step: the most that the program could reach

PROGRAM takes its replicas from poprun-py, and its data from an ipu_emu.hostio.Feed or an InfeedQueue, or it hands
them to session.run as a PyStepIO or PyStepIOCallback; then what it does between runs counts as preparation.
Each run ends after some steps.
Times are measured on this machine. Under poprun-py its first instance measures, on as many instances as the job has.

\b
  ipu-emu hostio train.py
  ipu-emu hostio --instances 1,2 --steps 200 --html feeds.html train.py --batch-size 32
"""


@click.command(
    "hostio",
    help=_HELP,
    short_help="Whether the host feeds a program fast enough.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--instances", default="", metavar="N,...", help="numbers of instances; 1, 2, 4 ... up to the CPUs or the job"
)
@click.option("--replicas-per-instance", type=click.IntRange(1), default=1, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=50, show_default=True, help="steps that are timed in a run")
@click.option("--timeout", type=click.FloatRange(1), default=600.0, show_default=True, help="seconds for one run")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="write the numbers here")
@click.option("--png", type=click.Path(path_type=Path), help="draw throughput by instances (needs matplotlib)")
@click.option("--html", type=click.Path(path_type=Path), help="write a page with table, picture and advice")
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def hostio(
    instances: str,
    replicas_per_instance: int,
    steps: int,
    timeout: float,
    json_file: Path | None,
    png: Path | None,
    html: Path | None,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run, print, write."""
    from gcl.drawing.units import counted
    from ipu_emu.cli.output.hostio_report import check_outputs, rate, write_html, write_json, write_png
    from ipu_emu.hostio.probe.bottleneck_analysis import advice, table
    from ipu_emu.hostio.probe.program_runs import MeasuredProgram, counts_of, measure

    if popdist_py.getInstanceIndex():
        return
    check_outputs(json_file, png, html)
    asked = MeasuredProgram((program, *arguments), replicas_per_instance, steps, timeout)
    runs = []
    with _ending_what_was_started():
        for run in measure(asked, counts_of(instances)):
            click.echo(f"{counted(run.instances, 'instance')}, {run.mode:9}  {rate(run):>12}")
            runs.append(run)
    said = advice(runs)
    click.echo("\n" + table(runs) + "\n\n" + "\n".join(said))
    for path, write in ((json_file, write_json), (png, write_png), (html, write_html)):
        if path:
            write(path, runs, said)
            click.echo(f"Written: {path}")


@contextmanager
def _ending_what_was_started() -> Iterator[None]:
    """SIGTERM is an exception here, as Ctrl-C is: the job that runs ends too."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
