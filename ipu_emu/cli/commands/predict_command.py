"""predict command: ``ipu-emu predict`` predicts a job's time and memory on a Pod, by formulas and a calibration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipu_emu.cli.arguments.job_options import (
    calibration_option,
    job_of,
    job_options,
    options_given,
    profile_named,
    warn_of,
)
from ipu_emu.cli.arguments.model_options import ModelCommand
from ipu_emu.cli.output.printing import say, show, write
from ipu_emu.errors import EmulatorError

if TYPE_CHECKING:
    from ipu_emu.predict.job import Job
    from ipu_emu.predict.prediction import Prediction
    from ipu_emu.session.memory_remedies import Remedies

_HELP = """Predict the time of a training step on a Pod, its memory, and what limits it. Nothing is compiled; a
calibration against published results gives the share of the nominal rates that real systems reach.

MODEL is the name of a network, as ipu-emu predict --list lists them, or an ONNX file.

\b
Examples
  ipu-emu predict resnet50 --system pod64 --replicas 64 --batch 20 --accumulation 3 --recompute --optimiser lars
  ipu-emu predict bert-large --length 512 --masked 76 --packing 2 --batch 2 --accumulation 192 --ipus 4 \\
      --replicas 4 --layers 3,7,7,7 --recompute --optimiser lamb --shared states --off-chip states
  ipu-emu predict resnet50 --replicas 128 --batch 20 --accumulation 2 --recompute --what-if gw-links=x2
  ipu-emu predict bert-large --search --system bow-pod64 --global-batch 4608 --optimiser lamb
  ipu-emu predict resnet50 --sweep replicas=1..64x2 --sweep batch=1..24 --recompute --output map.svg
  ipu-emu predict gpt2 --ipus 4 --replicas 16 --accumulation 512 --recompute --optimiser adam --output gpt2.html

\b
How to read the terms
  compute    the busiest IPU, for all micro-batches    ramps      filling and draining the pipeline
  ipu_links  collectives and copies over IPU-Links     gw_links   the part that crosses IPU-Link domains
  host       input that compute does not hide          streaming  to and from Streaming Memory
  update     the weight update                         fixed      syncs and latencies
They add up to the step. The interval covers 90 %; docs/guides/prediction.md explains how far to trust it.
"""


def _list(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from ipu_emu.predict.networks import NETWORKS, network

        width = max(map(len, NETWORKS))
        for name, entry in NETWORKS.items():
            say(f"{name:<{width}}  {network(name).parameters:>13,} parameters  {entry.summary}")
        context.exit()


@click.command(cls=ModelCommand, help=_HELP, short_help="Predict a job on a Pod, without compiling.")
@click.argument("model")
@job_options
@calibration_option
@click.option("--anchor", metavar="POD16=29543", help="Measured samples/s of this job there, to correct compute.")
@click.option(
    "--what-if",
    "changes",
    multiple=True,
    metavar="gw-links=x2",
    help="With another rate as well; may be repeated.",
)
@click.option("--sweep", "sweeps", multiple=True, metavar="batch=1..8", help="All these values; may be repeated.")
@click.option("--search", is_flag=True, help="The best of all configurations of the system that fit.")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Rows of --search.")
@click.option("--explain", is_flag=True, help="Show memory, calibration, and what each rate would give.")
@click.option(
    "--unknown",
    type=float,
    default=10.0,
    show_default=True,
    help="How much smaller unknown parameters may be.",
)
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the networks.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture as well: .svg, .png or .html."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def predict(
    model: str,
    calibration: str | None,
    anchor: str | None,
    changes: tuple[str, ...],
    sweeps: tuple[str, ...],
    search: bool,
    top: int,
    explain: bool,
    unknown: float,
    output: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Predict the job and print it."""
    from ipu_emu.predict.prediction import what_if_factors
    from ipu_emu.predict.report import facts, what_if_facts

    if not 1 <= unknown < float("inf"):
        raise EmulatorError(f"--unknown {unknown:g} is not possible; use at least 1")
    factors = [what_if_factors([text]) for text in changes]
    if search or sweeps:
        if (search and sweeps) or factors or explain or anchor:
            raise EmulatorError(
                "--search and --sweep cannot be combined with each other or with --what-if, --explain, --anchor"
            )
        _check_fixed(search)
        warn_of(["unknown", "samples", "epochs", *([] if search else ["top"])], "on --search and --sweep")
        _many(model, calibration, sweeps, top, output, form, options)
        return
    prediction = _predicted(model, calibration, anchor, unknown, options)
    warn_of(["top"], "without --search")
    if prediction.profile is None or not prediction.profile.unidentified:
        warn_of(["unknown"], "as there is no unknown parameter")
    report = facts(prediction)
    if prediction.verdict != "fits":
        report["memory"]["remedies"] = str(_remedies(prediction))
    if factors or explain or output is not None:
        report["what_if"] = what_if_facts(prediction, factors)
    if output is not None:
        from ipu_emu.cli.output.prediction_pictures import picture

        write(output, picture(output, report))
    from ipu_emu.cli.output.prediction_text import text

    show(form, report, lambda report: text(report, explain=explain))


def _remedies(prediction: Prediction) -> Remedies:
    """The flags with which the upper bound of the job's memory fits."""
    from ipu_emu.cli.arguments.memory_changes import memory_changes
    from ipu_emu.predict.prediction import predict as predicted
    from ipu_emu.session.footprint import MemoryNeed
    from ipu_emu.session.memory_remedies import find_remedies

    def need(job: Job) -> MemoryNeed:
        fullest = predicted(job, None).fullest
        return MemoryNeed(fullest.ipu, int(fullest.high), int(fullest.limit))

    job = prediction.job
    changes = memory_changes(
        job, job.system, batch_is_free=job.own_network is None, is_float=job.dtype == "float", recompute=True
    )
    return find_remedies(job, list(changes), need, now=need(job))


def _check_fixed(search: bool) -> None:
    """Raise an error for options that a search sets itself, or that a sweep cannot fix."""
    own = ("replicas", "ipus", "batch", "accumulation", "recompute", "off_chip", "shared", "layers", "embedding_ipu")
    fixed = options_given(own if search else ("global_batch",))
    if fixed:
        why = "--search tries all values of it" if search else "--sweep takes the accumulation as it is given"
        raise EmulatorError(f"{fixed[0]}: {why}; leave it out, or use {'--sweep' if search else '--search'}")


#: Columns of a sweep that are options of the same name.
_NUMBERS = ("replicas", "ipus", "batch", "accumulation")


def _many(
    model: str,
    calibration: str | None,
    sweeps: tuple[str, ...],
    top: int,
    output: Path | None,
    form: str,
    options: dict[str, Any],
) -> None:
    """Search, or evaluate all combinations of the sweeps."""
    from ipu_emu.cli.output.search_report import picture, search_facts, search_text, sweep_facts, sweep_text
    from ipu_emu.predict.search import search as searched
    from ipu_emu.predict.search import sweep, sweep_values

    swept = [sweep_values(text) for text in sweeps]
    axes = dict(swept)
    if len(axes) < len(swept):
        raise EmulatorError(
            f"--sweep {' --sweep '.join(sweeps)}: a name is given twice; write all of its values in one --sweep"
        )
    wanted = None if axes else options.pop("global_batch", None)
    first = {name: values[0] for name, values in axes.items() if name in _NUMBERS}
    base = {"global_batch": None, "replicas": options["bn_span"]} if not axes else {}
    job, _ = job_of(model, **(options | base | first))
    profile = profile_named(calibration)
    if axes:
        report = sweep_facts(f"{model}, {', '.join(sweeps)}", sweep(job, profile, axes))
    else:
        every = searched(job, profile, global_batch=wanted)
        title = f"{model} on {job.system.name}" + (f", global batch {wanted:,.0f}" if wanted else "")
        report = search_facts(title, every, top)
    if output is not None:
        write(output, picture(output, report, axes or None))
    show(form, report, sweep_text if axes else search_text)


def _predicted(
    model: str, calibration: str | None, anchor: str | None, unknown: float, options: dict[str, Any]
) -> Prediction:
    from ipu_emu.predict.prediction import anchored
    from ipu_emu.predict.prediction import predict as predicted

    job, may_move = job_of(model, **options)
    profile, notes = profile_named(calibration), []
    if anchor is not None:
        if profile is None:
            raise EmulatorError("--anchor corrects a calibration, and there is none; drop --calibration none")
        profile, note = anchored(job, profile, anchor)
        notes.append(note)
    return predicted(job, profile, unknown=unknown, may_move_states=may_move, notes=notes)
