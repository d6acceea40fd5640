"""clock command: ``ipu-emu clock`` compiles a model and shows the modelled time of a step on IPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcl.drawing.units import TimeUnit, memory
from ipu_emu.cli.arguments.job_options import calibration_option, profile_named, release_option
from ipu_emu.cli.arguments.model_options import (
    ModelCommand,
    compile_request,
    model_options,
    selection_order_option,
    system_named,
)
from ipu_emu.cli.output.printing import console, print_json, say, write
from ipu_emu.compiler.delayed_reports import DelayedReports

if TYPE_CHECKING:
    from ipu_emu.predict.prediction import Prediction
    from ipu_emu.program.clock import TimelineSegment
    from ipu_emu.session.footprint import MemoryNeed
from popdist_py.messages.named_choice import NamedChoice

#: Busy times are printed in a unit of at most a tenth of the step.
_PRECISION = 1000

_HELP = """Compile a model without running it, and model the time of its step on IPUs: compute, copies between IPUs,
host I/O and collectives.

MODEL is a name that ipu-emu models lists, an ONNX file, or a TensorFlow program (train.py), which is traced without
running; only the options for the output then have an effect.

\b
Examples
  ipu-emu clock resnet50 --batch 20 --accumulation 6 --replicas 16 --optimiser momentum
  ipu-emu clock bert-base --ipus 4 --schedule popart --accumulation 16 --system bow-pod16
  ipu-emu clock mlp --inference --format json
  ipu-emu clock transformer --ipus 2 --schedule sequential --accumulation 8 --output timeline.svg

The timeline uses the calibrated rates of ipu-emu predict, the shares of nominal rates that real Pods reach;
--calibration none uses nominal rates. For named models, the closed form of ipu-emu predict is shown as well, with the
options that describe the same program. docs/guides/ipu-emu.md describes the model.
"""


@click.command(cls=ModelCommand, help=_HELP, short_help="The modelled time of a step.")
@model_options
@calibration_option
@release_option
@click.option(
    "--sync",
    type=NamedChoice(["Full", "SinglePipeline", "ReplicaAndLadder"]),
    default="Full",
    show_default=True,
    help="Which IPUs of a pipeline wait for host I/O of one IPU: all, only that one, or those of its rail.",
)
@selection_order_option("zigzag", "Order of the IPUs of a replica on the ladder; auto is snake for pipelines.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the timeline as well: .svg, or .json for ui.perfetto.dev.",
)
@click.option("--format", "form", type=NamedChoice(["text", "json"]), default="text", show_default=True)
def clock(
    system: str | None,
    calibration: str | None,
    release: str,
    sync: str,
    selection_order: str,
    output: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Compile the model and print its modelled time."""
    where = system_named(system)
    from ipu_emu.hardware import PATTERNS, SelectionOrder, chosen_order
    from ipu_emu.hardware.rates import NOMINAL
    from ipu_emu.predict.job import calibrated_release
    from ipu_emu.predict.report import facts as prediction_facts
    from ipu_emu.program.clock import ModelledMachine, timeline
    from ipu_emu.program.clock.timeline_files import timeline_file

    request = compile_request(**options)
    order = chosen_order(SelectionOrder[selection_order.upper()], range(request.ipus) if request.schedule else None)
    profile = profile_named(calibration)
    calibrated_release(release)  # report an unknown release even if there is no calibration
    rates = NOMINAL if profile is None else profile.rates(release)
    machine = ModelledMachine(where, request.replicas, request.ipus, rates, sync=PATTERNS[sync], order=order)
    with DelayedReports() as report:
        report(f"compiling {request.title}")
        compiled = request.compiled(where)
    segment = timeline(compiled.executable, machine)
    predicted = None if profile is None else request.predicted(where, profile, release)
    if output is not None:
        write(output, timeline_file(output, request.title, segment.seconds, segment.spans))
    if form == "json":
        room = {"fits": compiled.need.fits, "bytes": compiled.need.nbytes, "limit_bytes": compiled.need.limit}
        facts = _facts(segment, request.samples, where.generation.clock) | {"memory": room}
        quoted = None if predicted is None else prediction_facts(predicted)
        print_json(facts | {"predicted": quoted})
        return
    said = _said(predicted) if predicted else ""
    _print(request.title, segment, request.samples, where.generation.clock, said)
    if not compiled.need.fits:
        say(f"\n{_refusal(compiled.need)}")


def _refusal(need: MemoryNeed) -> str:
    """The note that the modelled step does not fit, so that no IPU can run it."""
    share = f"{need.nbytes / need.limit:.0%}, {need}"
    lacking = f"; {memory(need.streaming)} of Streaming Memory are missing" if need.streaming else ""
    return (
        f"DOES NOT FIT: {share}{lacking}. No IPU can run this step, and its time is that of IPUs with more memory. "
        "ipu-emu memory, with the same options, says what would fit"
    )


def _facts(segment: TimelineSegment, samples: int, hertz: float) -> dict[str, Any]:
    return {
        "modelled_seconds": segment.seconds,
        "modelled_cycles": round(segment.seconds * hertz),
        "samples": samples,
        "samples_per_second": samples / segment.seconds,
        "busy_seconds_by_kind": {kind.value: seconds for kind, seconds in segment.by_category().items()},
        "busy_seconds_by_ipu": segment.by_ipu(),
    }


def _said(predicted: Prediction) -> str:
    """The prediction as text."""
    low, high = predicted.interval
    kind = predicted.job.input_dtype
    options = " --input-dtype ".join(["--no-overlap-io", *([kind] if kind else [])])
    rate = f"{predicted.throughput:,.1f} samples per second (90 %: {low:,.0f} to {high:,.0f})"
    return f"ipu-emu predict {options}: {rate}"


def _print(title: str, segment: TimelineSegment, samples: int, hertz: float, said: str) -> None:
    from rich.table import Table
    from rich.text import Text

    shown = console()
    unit = TimeUnit.of(segment.seconds / _PRECISION)
    shown.print(Text(title, style="bold"))
    shown.print(
        f"modelled step {TimeUnit.of(segment.seconds).text(segment.seconds)} = {segment.seconds * hertz:,.0f} "
        f"cycles, {samples / segment.seconds:,.1f} samples per second"
    )
    shown.print(f"{said}\n" if said else "")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("busy time")
    for ipu in segment.by_ipu():
        table.add_column(f"IPU {ipu}, {unit.name}", justify="right")
    for kind, seconds in segment.by_category().items():
        if seconds:
            table.add_row(kind.value, *(unit.number(segment.busy[ipu, kind]) for ipu in segment.by_ipu()))
    shown.print(table)
    shares = ", ".join(f"IPU {ipu} {busy / segment.seconds:.1%}" for ipu, busy in segment.by_ipu().items())
    shown.print(f"\nshare of the step: {shares}")
