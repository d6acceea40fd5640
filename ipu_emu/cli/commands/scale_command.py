"""scale command: ``ipu-emu scale`` predicts a job on more and more IPUs, or measures a program on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ipu_emu.cli.commands.job_options import calibration_option, job_of, job_options, profile_named
from ipu_emu.cli.output.printing import print_json, write
from ipu_emu.errors import EmulatorError

__all__ = ["scale"]

_HELP = """Scale a job. With MODEL: predict it on more and more IPUs, weak (the global batch grows) or strong (it
stays). With --run: measure your program with more and more instances on this machine, and fit t and c.

\b
Examples
  ipu-emu scale resnet50 --sizes 16..65536 --batch 20 --accumulation 6 --recompute --bn-span 2
  ipu-emu scale bert-large --sizes 16..256 --ipus 4 --batch 2 --accumulation 192 --strong --output scale.html
  ipu-emu scale resnet50 --sizes 16..128 --batch 20 --accumulation 3 --recompute --measured rows.csv

\b
Throughput is shown with its 90 % interval, the ideal line from the smallest size, and what Amdahl's law (the same
work) and Gustafson's law (work that grows) would give with the constant share of the smallest size.
"""


@click.command(help=_HELP, short_help="A job on more and more IPUs.")
@click.argument("model", required=False)
@job_options
@calibration_option
@click.option("--sizes", default="16..256", show_default=True, help="IPUs: 16..65536 doubles, 16,64,256 lists.")
@click.option("--weak", is_flag=True, help="Keep the accumulation of every replica.  [default]")
@click.option("--strong", is_flag=True, help="Keep the global batch.")
@click.option("--measured", type=click.Path(dir_okay=False, path_type=Path), help="Measured rows, as for calibrate.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Also write a picture: .svg, .png or .html."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def scale(
    model: str | None,
    calibration: str | None,
    sizes: str,
    weak: bool,
    strong: bool,
    measured: Path | None,
    output: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Predict at all sizes."""
    if model is None:
        raise EmulatorError("nothing to scale; give a network to predict")
    if weak and strong:
        raise EmulatorError("--weak and --strong are two curves; ask for one at a time")
    found = _predicted(model, calibration, sizes, strong, measured, options)
    if output is not None:
        from ipu_emu.cli.output.scale_report import picture

        write(output, picture(output, found))
    if form == "json":
        print_json(found)
    else:
        from ipu_emu.cli.output.scale_report import scale_text

        click.echo(scale_text(found))


def _predicted(
    model: str,
    calibration: str | None,
    sizes: str,
    strong: bool,
    measured: Path | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    from ipu_emu.cli.output.scale_report import measured_facts, scale_facts
    from ipu_emu.predict.prediction import predict
    from ipu_emu.predict.scaling import at_sizes, sizes_of

    wanted = sizes_of(sizes)
    options["replicas"] = max(1, wanted[0] // max(1, options["ipus"]))
    if options["system"] is not None:
        options["system"] = _kind(options["system"], wanted[0])
    profile = profile_named(calibration)
    job, _ = job_of(model, **options)
    points = at_sizes(job, profile, wanted, strong=strong)
    rows = [] if measured is None else [row for row in _rows(measured) if row.job.model == model]
    beside = [measured_facts(row, predict(row.job, profile)) for row in rows]
    return scale_facts(job.model, "strong" if strong else "weak", points, beside)


def _kind(name: str, ipus: int) -> str:
    """The system of the kind of ``name`` that holds the first size."""
    from ipu_emu.hardware import System
    from ipu_emu.predict.job import smallest_pod

    return smallest_pod(ipus, System.named(name, "--system ")).name


def _rows(path: Path) -> list[Any]:
    from ipu_emu.predict.rows import read_rows

    try:
        return list(read_rows(path.read_text(), path.name))
    except (OSError, UnicodeDecodeError):
        raise EmulatorError(f"--measured {path} cannot be read; give a CSV file, as for calibrate") from None
