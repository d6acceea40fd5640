"""report command: ``ipu-emu report DIR`` shows where the time of a traced run went, or compares two runs."""

from __future__ import annotations

from pathlib import Path

import click

from ipu_emu.errors import ArgumentError

_HELP = """Show what a traced run spent its time on, and what limits it. With two folders, compare the runs.

Record a run with `poprun-py --trace DIR ... program`, or any program with IPU_EMU_TRACE=DIR. All times are wall time
measured on the hosts of the run.

\b
  ipu-emu report run                                       summary, findings and tables
  ipu-emu report run --html run.html                       the same with a timeline of all instances, as one page
  ipu-emu report run --perfetto run.json                   the timeline for ui.perfetto.dev
  ipu-emu report one-replica two-replicas                  which parts of a step take longer

PopVision's .pvti files are neither read nor written, because their format is not published.
"""


@click.command("report", help=_HELP, short_help="Analyse a traced run.")
@click.option(
    "--format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="json has all numbers."
)
@click.option("--text", is_flag=True, help="Print text, as --format text does.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a single page, with a timeline.")
@click.option(
    "--perfetto", type=click.Path(path_type=Path, dir_okay=False), help="Write a trace for ui.perfetto.dev."
)
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
def report(format: str, text: bool, html: Path | None, perfetto: Path | None, folders: tuple[Path, ...]) -> None:
    """Read the traces, print and write the report."""
    from ipu_emu.cli.output.printing import check_outputs, show, write
    from ipu_emu.cli.output.run_report.charts.library import MISSING, library_script
    from ipu_emu.cli.output.run_report.report_page import report_html
    from ipu_emu.cli.output.run_report.report_text import comparison_text, report_text
    from ipu_emu.trace import read_run
    from ipu_emu.trace.comparison import compare
    from ipu_emu.trace.findings import analyse
    from ipu_emu.trace.report_data import report_data
    from ipu_emu.trace.timelines.perfetto import trace_events

    if text and format == "json":
        raise ArgumentError("--text and --format json were given; leave out one of them")
    if len(folders) > 2:
        raise ArgumentError(f"{len(folders)} folders were given; give one run, or two that are compared")
    if len(folders) == 2 and (html or perfetto):
        raise ArgumentError("--html and --perfetto show one run; leave out one of the folders")
    check_outputs(html=html, perfetto=perfetto)
    analyses = [analyse(read_run(folder)) for folder in folders]
    if len(analyses) == 2:
        show(format, compare(*analyses).data(), comparison_text)
        return
    data = report_data(analyses[0])
    show(format, data, report_text)
    if html:
        write(html, report_html(analyses[0], data), mode=analyses[0].run.mode)
        if library_script() is None:
            click.echo(f"{html}: {MISSING}", err=True)
    if perfetto:
        write(perfetto, trace_events(analyses[0].run), mode=analyses[0].run.mode)
