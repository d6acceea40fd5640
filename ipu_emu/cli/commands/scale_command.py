"""scale command: ``ipu-emu scale`` predicts a job on increasing numbers of IPUs, or measures a program's scaling."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from ipu_emu.cli.arguments.job_options import (
    calibration_option,
    job_of,
    options_given,
    profile_named,
    shared_job_options,
)
from ipu_emu.cli.arguments.model_options import ModelCommand
from ipu_emu.cli.output.printing import check_outputs, say, show, write
from ipu_emu.errors import EmulatorError
from popdist_py.dependent_program import sigterm_as_exit
from popdist_py.files.bounded_read import read_file

if TYPE_CHECKING:
    from ipu_emu.predict.experiment.plan import Plan

_MOST_BYTES = 64 << 20
_HELP = """Scale a job. With MODEL: predict it on increasing numbers of IPUs, with weak scaling (the global batch
grows) or strong scaling (it stays the same). With --run: measure how PROGRAM, unchanged, scales on this machine, and
say why.

\b
Examples
  ipu-emu scale resnet50 --sizes 16..65536 --batch 20 --accumulation 6 --recompute --bn-span 2
  ipu-emu scale bert-large --sizes 16..256 --ipus 4 --batch 2 --accumulation 192 --strong --output scale.html
  ipu-emu scale resnet50 --sizes 16..128 --batch 20 --accumulation 3 --recompute --measured rows.csv
  ipu-emu scale --run -- python examples/digits.py
  ipu-emu scale --run --html digits.html --json a.json -- python examples/digits.py --half
  ipu-emu scale --run --sizes 1x1,2x2 --accumulations 1,2,4 -- python train.py --ga {accumulation}
  ipu-emu scale --compare a.json b.json

With --run, configurations of instances x replicas alternate in rounds after a warm-up. The time of a step comes from
the recorder (poprun-py --trace), else from a line that the program prints (step_seconds 0.0123, or throughput 4567 in
samples per second), else it is that of the run. Whether scaling is weak or strong is observed, unless an
option tells. {accumulation}, {instances} and {replicas} in the arguments are replaced. The report has medians, the
time t of a sample, the constant time c of a step, communication and waiting with 90 % intervals, speed-up and
efficiency beside the laws of scaling, the first limit of each configuration, what to try, and the same job on a Pod.
--launcher passes options to poprun-py, such as the hosts of a cluster.

Throughput of predictions is shown with its 90 % interval, the ideal line from the smallest size, and the results of
Amdahl's law (fixed work) and Gustafson's law (scaled work) for the constant share of the smallest size.
"""

_file = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=ModelCommand, help=_HELP, short_help="A job on increasing numbers of IPUs.")
@click.argument("words", nargs=-1, metavar="[MODEL | -- PROGRAM...]")
@shared_job_options
@calibration_option
@click.option("--sizes", help="IPUs: 16,64,256, or 16..65536 (doubling); of --run 1x1,1x2,2x2.  [default: 16..256]")
@click.option("--weak", is_flag=True, help="Keep the accumulation of every replica.  [default; --run: as observed]")
@click.option("--strong", is_flag=True, help="Keep the global batch.")
@click.option("--run", is_flag=True, help="Measure PROGRAM under poprun-py instead.")
@click.option("--seconds", type=click.FloatRange(1), default=75.0, show_default=True, help="Time for --run.")
@click.option("--accumulations", default="1,2,4", show_default=True, help="Values of {accumulation} of --run.")
@click.option("--launcher", default="", metavar="OPTIONS", help="More options of poprun-py for --run.")
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds that one run may take.")
@click.option("--host-io", is_flag=True, help="Also run with generated and synthetic data, as ipu-emu hostio.")
@click.option("--json", "json_file", type=_file, help="Write all numbers of --run.")
@click.option("--html", type=_file, help="Write the report of --run as a page.")
@click.option("--compare", nargs=2, type=_file, help="Compare two files of --json instead.")
@click.option("--measured", type=_file, help="Measured rows, as for calibrate.")
@click.option("--output", type=_file, help="Write a picture as well: .svg or .png; of a prediction also .html.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def scale(
    words: tuple[str, ...],
    calibration: str | None,
    sizes: str | None,
    weak: bool,
    strong: bool,
    run: bool,
    seconds: float,
    accumulations: str,
    launcher: str,
    timeout: float,
    host_io: bool,
    json_file: Path | None,
    html: Path | None,
    compare: tuple[Path, Path] | None,
    measured: Path | None,
    output: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Predict at all sizes, measure, or compare two measurements."""
    if bool(words) if compare else not words or (len(words) > 1 and not run):
        raise EmulatorError(
            "give one of these: a network to predict, --run and a program, or --compare and two files"
        )
    _check_kind(compares=bool(compare), measures=run)
    if weak and strong:
        raise EmulatorError("--weak and --strong are two curves; ask for one at a time")
    if compare:
        _compare(*compare)
        return
    if run:
        from ipu_emu.predict.experiment.plan import Plan

        kind = "weak" if weak else "strong" if strong else ""
        numbers = _numbers("--accumulations", accumulations)
        settings = {"launcher": _words("--launcher", launcher), "timeout": timeout, "seconds": seconds}
        batch = options["batch"] if options_given(["batch"]) else 0
        plan = Plan.of(words, sizes or "", numbers, scaling=kind, batch=batch, **settings)
        _measure(plan, {"json": json_file, "html": html, "output": output}, host_io, form)
        return
    report = _predicted(words[0], calibration, sizes or "16..256", strong, measured, options)
    from ipu_emu.cli.output.scale_report import picture, scale_text

    if output is not None:
        write(output, picture(output, report))
    show(form, report, scale_text)


#: Options of measurements only, and options of both kinds.
_MEASURES = ("seconds", "accumulations", "launcher", "timeout", "host_io", "json_file", "html")
_BOTH = ("words", "run", "batch", "weak", "strong", "sizes", "compare", "output", "form")
_NOT_OF_PREDICTIONS = {
    **dict.fromkeys(_MEASURES, "is of --run; leave it out"),
    **dict.fromkeys(("replicas", "hosts"), "follows from --sizes; leave it out"),
    **dict.fromkeys(("samples", "epochs"), "is of ipu-emu predict, which prints the time to train; leave it out"),
}


def _check_kind(*, compares: bool, measures: bool) -> None:
    """Raise an error for options without effect."""
    names = [parameter.name or "" for parameter in click.get_current_context().command.params]
    if compares and (others := options_given(name for name in names if name != "compare")):
        raise EmulatorError(f"{others[0]} has no effect on --compare; leave it out")
    reasons = _NOT_OF_PREDICTIONS
    if measures:
        others = [name for name in names if name not in (*_MEASURES, *_BOTH)]
        reasons = dict.fromkeys(others, "has no effect on --run; write -- before the program and its options")
    for name in names:
        if name in reasons and (rejected := options_given([name])):
            raise EmulatorError(f"{rejected[0]} {reasons[name]}")


def _measure(plan: Plan, outputs: dict[str, Path | None], host_io: bool, form: str) -> None:
    """Run the experiment; its options are checked before it begins."""
    from ipu_emu.cli.arguments.measured_job import on_pods
    from ipu_emu.cli.output.experiment_page import experiment_page, experiment_picture
    from ipu_emu.cli.output.experiment_report import experiment_facts, experiment_text
    from ipu_emu.cli.output.scale_report import scale_facts
    from ipu_emu.predict.experiment.fit import fit
    from ipu_emu.predict.experiment.measuring import launched, measure

    picture = outputs["output"]
    if picture is not None and picture.suffix not in (".svg", ".png"):
        raise EmulatorError(f"--output {picture}: pictures are .svg or .png; use one of these, or --html")
    check_outputs(**outputs)
    click.echo(plan.text(), err=True)
    with sigterm_as_exit(), TemporaryDirectory(prefix="ipu-emu-executables-") as cache:
        runs = measure(plan, launched(plan, Path(cache)), lambda line: click.echo(line, err=True))
        fitted = fit(runs)
        facts = experiment_facts(runs, fitted, shlex.join(["ipu-emu", *sys.argv[1:]]))
        try:
            points = on_pods(Path(cache), plan.name, strong=fitted.shares.scaling == "strong")
            facts["pod"] = scale_facts(points[0].prediction.job.title, fitted.shares.scaling, points, [])
        except EmulatorError as error:
            facts["warnings"].append(f"no prediction for a Pod: {error}")
        if host_io:
            facts["host_io"] = _host_io(plan)
    show(form, facts, experiment_text)
    if outputs["json"] is not None:
        write(outputs["json"], (json.dumps(facts, indent=1) + "\n").encode())
    if outputs["html"] is not None:
        write(outputs["html"], experiment_page(facts))
    if picture is not None:
        write(picture, experiment_picture(picture, facts))


def _host_io(plan: Plan) -> dict[str, Any]:
    """The analysis of ``ipu-emu hostio`` on one instance and on as many as there are cores, at most."""
    from ipu_emu.hostio.probe.bottleneck_analysis import advice, table
    from ipu_emu.hostio.probe.program_runs import MeasuredProgram, measure

    counts = sorted({c.instances for c in plan.configurations if c.instances <= plan.cores})
    program = plan.program[0 if plan.program[0].endswith(".py") else 1 :]
    runs = list(measure(MeasuredProgram(program, 1, 50, plan.timeout), counts))
    said = advice(runs)
    return {"runs": [vars(run) for run in runs], "advice": said, "lines": ["", "host I/O", table(runs), *said]}


def _compare(before: Path, after: Path) -> None:
    from ipu_emu.cli.output.experiment_report import comparison_text

    experiments = []
    for path in (before, after):
        try:
            facts = json.loads(read_file(path, _MOST_BYTES))
        except (OSError, ValueError) as error:
            raise EmulatorError(f"--compare {path} cannot be read: {error}; give files of --run --json") from None
        if not isinstance(facts, dict) or facts.get("schema") != "ipu-emu experiment 2":
            raise EmulatorError(f"--compare {path} is no experiment; give files of --run --json")
        experiments.append(facts)
    say(comparison_text(*experiments))


def _words(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise EmulatorError(f"{option} {text}: {error}; close the quotation") from None


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
        if min(numbers) < 1:
            raise ValueError
    except ValueError:
        raise EmulatorError(f"{option} {text}: not a list of numbers from 1; use for example 1,2,4") from None
    return numbers


def _predicted(
    model: str,
    calibration: str | None,
    sizes: str,
    strong: bool,
    measured: Path | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    from ipu_emu.cli.output.scale_report import measured_facts, scale_facts
    from ipu_emu.hardware import System
    from ipu_emu.predict.calibration.rows import read_rows, rows_text
    from ipu_emu.predict.job import smallest_pod
    from ipu_emu.predict.prediction import predict
    from ipu_emu.predict.scaling import at_sizes, sizes_of

    wanted = sizes_of(sizes)
    options["replicas"] = max(1, wanted[0] // max(1, options["ipus"]))
    if options["system"] is not None:  # its kind, for the first size
        options["system"] = smallest_pod(wanted[0], System.named(options["system"], "--system ")).name
    profile = profile_named(calibration)
    job, _ = job_of(model, **options)
    points = at_sizes(job, profile, wanted, strong=strong)
    if dropped := wanted[len(points) :]:
        warnings.warn(
            f"--strong: an accumulation of {job.accumulation} on {wanted[0]} IPUs cannot be divided for "
            f"{', '.join(map(str, dropped))} IPUs, which are left out; use a larger --accumulation",
            stacklevel=2,
        )
    rows = [] if measured is None else read_rows(rows_text(measured, "--measured "), measured.name)
    comparisons = [measured_facts(row, predict(row.job, profile)) for row in rows if row.job.model == model]
    return scale_facts(job.model, "strong" if strong else "weak", points, comparisons)
