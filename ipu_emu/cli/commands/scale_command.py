"""scale command: ``ipu-emu scale`` predicts a job on increasing numbers of IPUs, or measures a program's scaling."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import Any

import click

from ipu_emu.cli.arguments.job_options import (
    calibration_option,
    job_of,
    options_given,
    profile_named,
    shared_job_options,
)
from ipu_emu.cli.arguments.model_options import ModelCommand
from ipu_emu.cli.output.printing import check_outputs, print_json, say, write
from ipu_emu.errors import EmulatorError

_HELP = """Scale a job. With MODEL: predict it on increasing numbers of IPUs, with weak scaling (the global batch
grows) or strong scaling (it stays the same). With --run: measure your program with increasing numbers of instances on
this machine, and fit the time t of a micro-batch and the constant time c of a step.

\b
Examples
  ipu-emu scale resnet50 --sizes 16..65536 --batch 20 --accumulation 6 --recompute --bn-span 2
  ipu-emu scale bert-large --sizes 16..256 --ipus 4 --batch 2 --accumulation 192 --strong --output scale.html
  ipu-emu scale resnet50 --sizes 16..128 --batch 20 --accumulation 3 --recompute --measured rows.csv
  ipu-emu scale --run train.py --instances 1,2,4 --accumulations 1,2,4 --batch 32 --weak --strong --rows rows.csv

With --run, the program is passed --accumulation, or the values that replace {accumulation}, {instances}, {replicas}
in its arguments. It must print "step_seconds 0.0123", or "throughput 4567" in samples per second. Rounds
alternate, the shortest times are used, and a busy machine is refused. --launcher passes options to poprun-py, such
as the hosts of a cluster.

Throughput is shown with its 90 % interval, the ideal line from the smallest size, and the results of Amdahl's law
(fixed work) and Gustafson's law (scaled work) for the constant share of the smallest size.
"""


@click.command(cls=ModelCommand, help=_HELP, short_help="A job on increasing numbers of IPUs.")
@click.argument("model", required=False)
@shared_job_options
@calibration_option
@click.option("--sizes", default="16..256", show_default=True, help="IPUs: 16,64,256, or 16..65536 (doubling).")
@click.option("--weak", is_flag=True, help="Keep the accumulation of every replica.  [default]")
@click.option("--strong", is_flag=True, help="Keep the global batch.")
@click.option("--run", metavar="'PROGRAM ARGS'", help="Measure this program under poprun-py instead.")
@click.option("--instances", default="1,2", show_default=True, help="Numbers of instances of --run.")
@click.option("--accumulations", default="1,2,4", show_default=True, help="Accumulations of --run.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds of --run.")
@click.option("--launcher", default="", metavar="OPTIONS", help="More options of poprun-py for --run.")
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds that one run may take.")
@click.option("--force", is_flag=True, help="Measure even if the machine is busy; the result is marked.")
@click.option("--rows", type=click.Path(dir_okay=False, path_type=Path), help="Write measured rows for calibrate.")
@click.option("--measured", type=click.Path(dir_okay=False, path_type=Path), help="Measured rows, as for calibrate.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture as well: .svg, .png or .html."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def scale(
    model: str | None,
    calibration: str | None,
    sizes: str,
    weak: bool,
    strong: bool,
    run: str | None,
    instances: str,
    accumulations: str,
    rounds: int,
    launcher: str,
    timeout: float,
    force: bool,
    rows: Path | None,
    measured: Path | None,
    output: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Predict at all sizes, or measure."""
    if (model is None) == (run is None):
        raise EmulatorError("give one of both: a network to predict, or --run and a program to measure")
    _check_kind(measures=run is not None)
    if run is not None:
        kinds = tuple(kind for kind, is_given in (("weak", weak), ("strong", strong)) if is_given) or ("weak",)
        numbers = {
            "instances": _numbers("--instances", instances),
            "accumulations": _numbers("--accumulations", accumulations),
            "batch": options["batch"],
            "rounds": rounds,
            "timeout": timeout,
        }
        _measure(run, kinds, numbers, launcher, force, rows, output, form)
        return
    assert model is not None
    if weak and strong:
        raise EmulatorError("--weak and --strong are two curves; ask for one at a time")
    report = _predicted(model, calibration, sizes, strong, measured, options)
    if output is not None:
        from ipu_emu.cli.output.scale_report import picture

        write(output, picture(output, report))
    if form == "json":
        print_json(report)
    else:
        from ipu_emu.cli.output.scale_report import scale_text

        say(scale_text(report))


#: Options of measurements only, and options of both kinds.
_MEASURES = ("instances", "accumulations", "rounds", "launcher", "timeout", "force", "rows")
_BOTH = ("model", "run", "batch", "weak", "strong", "output", "form")


def _check_kind(*, measures: bool) -> None:
    """Raise an error for options without effect."""
    names = [parameter.name or "" for parameter in click.get_current_context().command.params]
    own, unused = ("replicas", "hosts"), ("samples", "epochs")
    wrong = [n for n in names if n not in (*_MEASURES, *_BOTH)] if measures else [*_MEASURES, *own, *unused]
    rejected = options_given(wrong)
    if rejected:
        why = "has no effect on --run" if measures else "is of --run"
        name = rejected[0].removeprefix("--")
        why = "follows from --sizes" if name in own and not measures else why
        why = "is of ipu-emu predict, which prints the time to train" if name in unused and not measures else why
        raise EmulatorError(f"{rejected[0]} {why}; leave it out")


def _measure(
    run: str,
    kinds: tuple[str, ...],
    numbers: dict[str, Any],
    launcher: str,
    force: bool,
    rows: Path | None,
    output: Path | None,
    form: str,
) -> None:
    """Run the experiment; its options are checked before it begins."""
    from ipu_emu.cli.output.experiment_report import experiment_facts, experiment_text, picture
    from ipu_emu.predict.experiment import Experiment, check_idle, launched

    words, more = _words("--run", run), _words("--launcher", launcher)
    experiment = Experiment(words, launcher=more, **numbers)
    if output is not None and output.suffix not in (".svg", ".png", ".html", ".htm"):
        raise EmulatorError(f"--output {output}: pictures are .svg, .html or .png; use one of these suffixes")
    check_outputs(rows=rows, output=output)
    measurements = experiment.run(launched, idle=check_idle(force=force))
    facts = experiment_facts(measurements, kinds)
    if form == "json":
        print_json(facts)
    else:
        say(experiment_text(facts))
    if rows is not None:
        write(rows, measurements.rows().encode())
    if output is not None:
        write(output, picture(output, facts))


def _words(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise EmulatorError(f"{option} {text}: {error}; close the quotation") from None


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise EmulatorError(f"{option} {text}: not a list of numbers; use for example 1,2,4") from None


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
    if dropped := wanted[len(points) :]:
        warnings.warn(
            f"--strong: an accumulation of {job.accumulation} on {wanted[0]} IPUs cannot be divided for "
            f"{', '.join(map(str, dropped))} IPUs, which are left out; use a larger --accumulation",
            stacklevel=2,
        )
    rows = [] if measured is None else [row for row in _rows(measured) if row.job.model == model]
    comparisons = [measured_facts(row, predict(row.job, profile)) for row in rows]
    return scale_facts(job.model, "strong" if strong else "weak", points, comparisons)


def _kind(name: str, ipus: int) -> str:
    """The system of the kind of ``name`` that holds the first size."""
    from ipu_emu.hardware import System
    from ipu_emu.predict.job import smallest_pod

    return smallest_pod(ipus, System.named(name, "--system ")).name


def _rows(path: Path) -> list[Any]:
    from ipu_emu.predict.calibration.rows import read_rows, rows_text

    return list(read_rows(rows_text(path, "--measured "), path.name))
