"""schedule command: ``ipu-emu schedule`` prints which stage of a pipeline runs which micro-batch in which slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import click

from ipu_emu.cli.arguments.model_options import selection_order_option
from ipu_emu.cli.output.printing import console, print_json
from ipu_emu.errors import EmulatorError
from ipu_emu.program.schedules import SCHEDULES

if TYPE_CHECKING:
    from ipu_emu.cli.arguments.traced_program import TracedPipeline
    from ipu_emu.program.schedules import Mapping
    from ipu_emu.program.schedules.schedule_timing import StageTimes
from popdist_py.messages.named_choice import NamedChoice

Number = TypeVar("Number", int, float)

#: Limits that keep a drawing readable.
_MAX_STAGES, _MAX_TASKS = 256, 20_000

_KINDS = "\n".join(f"  {name:<11}  {entry.summary}" for name, entry in SCHEDULES.items())
_HELP = """Print the slots of a pipeline: which stage runs which micro-batch, on which IPU.

The pipeline is that of PROGRAM, a Python program for TensorFlow, which runs until its first compiled function would
run; or it is given by options.

\b
Kinds
KINDS

\b
Examples
  ipu-emu schedule --kind grouped --stages 4 --count 16
  ipu-emu schedule --kind interleaved --stages 2 --count 8 --recompute
  ipu-emu schedule --kind sequential --stages 3 --count 4 --mapping 0,1,1
  ipu-emu schedule --kind grouped --stages 3 --count 6 --mapping 0,1+2,3
  ipu-emu schedule --kind grouped --stages 4 --count 16 --forward 1,2,1,1 --backward 2,2,4,2
  ipu-emu schedule --kind grouped --stages 2 --count 8 --io-tiles
  ipu-emu schedule --kind sequential --stages 2 --count 2 --batch-serialization 3
  ipu-emu schedule --kind popart --stages 4 --count 16 --format svg > pipeline.svg
  ipu-emu schedule train.py

\b
How to read the drawing
  a row is an IPU, a column a slot
  F2 forward of micro-batch 2     B2 its backward     FB2 both in one task     r2 its recomputation
  F1.2 forward of stage 1, micro-batch 2, if an IPU has several stages
  L2 I/O tiles load micro-batch 2 during compute     S2 they store its results

--format json is a list of slots, each a list of {ipu, stage, micro_batch, what} in program order; backward stages are
numbered after the forward ones. The efficiency is modelled from the times of the stages, without copies between
IPUs and the weight update.
""".replace("KINDS", _KINDS)


@click.command(help=_HELP, short_help="Which stage of a pipeline runs when.")
@click.argument("program", default="")
@click.option("--kind", type=NamedChoice(list(SCHEDULES)), default="grouped", show_default=True, help="Schedule.")
@click.option("--stages", type=click.IntRange(1, _MAX_STAGES), help="Number of forward stages.")
@click.option("--count", type=int, help="Micro-batches per weight update (gradient accumulation).")
@click.option("--inference", is_flag=True, help="Forward stages only.")
@click.option("--recompute", is_flag=True, help="Recompute activations instead of keeping them.")
@click.option("--io-tiles", is_flag=True, help="Load and store on I/O tiles during compute (grouped only).")
@click.option(
    "--batch-serialization",
    type=click.IntRange(1),
    default=1,
    metavar="Q",
    help="Micro-batches that a stage runs in a row; Q times --count in total (sequential only, one IPU).",
)
@click.option(
    "--mapping",
    metavar="0,1,1",
    help="IPU of each forward stage; -1 for all, 1+2 for concurrent parts on two.  [default: 0,1,2,...]",
)
@selection_order_option(
    "auto", "How IPUs of the mapping are placed on the device; auto is snake for 0,1,2,..., else zigzag."
)
@click.option("--forward", metavar="1,2,1", help="Time of each forward stage, in any unit.  [default: 1]")
@click.option("--backward", metavar="2,4,2", help="Time of each backward stage.  [default: twice the forward]")
@click.option(
    "--barrier",
    type=NamedChoice(["one", "halves", "none"]),
    default="one",
    show_default=True,
    help="When all IPUs sync: once per slot; twice, after forward and after backward tasks; never.",
)
@click.option("--format", "form", type=NamedChoice(["text", "json", "svg"]), default="text", show_default=True)
@click.pass_context
def schedule(
    context: click.Context,
    program: str,
    kind: str,
    stages: int | None,
    count: int | None,
    inference: bool,
    recompute: bool,
    io_tiles: bool,
    batch_serialization: int,
    mapping: str | None,
    selection_order: str,
    forward: str | None,
    backward: str | None,
    barrier: str,
    form: str,
) -> None:
    """Print the schedule."""
    from ipu_emu.cli.output.schedule_summary import PipelineSummary
    from ipu_emu.hardware import SelectionOrder
    from ipu_emu.program.schedules.schedule_timing import Barrier

    ipus = None if mapping is None else _mapping(mapping)
    if program:
        traced = _of_program(program, context)
        kind, stages, count, ipus = traced.kind, traced.stages, traced.count, traced.mapping
        inference, recompute, batch_serialization = not traced.training, traced.recompute, traced.iterations
    if stages is None or count is None:
        raise click.UsageError("Missing pipeline; give a program, or --stages and --count")
    if count * stages * batch_serialization > _MAX_TASKS:
        raise EmulatorError(
            f"--stages {stages} --count {count}: too many tasks to draw; "
            f"use at most {_MAX_TASKS // stages} micro-batches in total"
        )
    if inference and recompute:
        raise EmulatorError("--inference --recompute: inference keeps no activations to recompute; drop one")
    times = _stage_times(forward, backward, stages)
    ipus = [0] * stages if batch_serialization != 1 and ipus is None else ipus
    order, repeated = SelectionOrder[selection_order.upper()], batch_serialization
    pipeline = PipelineSummary(kind, stages, count, ipus, not inference, recompute, io_tiles, repeated, order)
    if form == "json":
        print_json([[asdict(task) for task in slot] for slot in pipeline.slots])
    elif form == "svg":
        from ipu_emu.cli.output.schedule_text import svg

        click.echo(svg(pipeline, times, Barrier(barrier)))
    else:
        from ipu_emu.cli.output.schedule_text import text

        console().print(text(pipeline, times, Barrier(barrier), console().width))


def _of_program(program: str, context: click.Context) -> TracedPipeline:
    """The pipeline that a program builds; raise EmulatorError for options that contradict it."""
    from ipu_emu.cli.arguments.traced_program import TracedProgram

    names = ("kind", "stages", "count", "inference", "recompute", "io_tiles", "batch_serialization", "mapping")
    named = [name for name in names if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    if named:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in named)
        raise EmulatorError(
            f"{options}: the program {program} says what its pipeline is; drop the option, or the program"
        )
    return TracedProgram.of(program).pipeline()


def _mapping(text: str) -> Mapping:
    """Return the IPUs of each stage; a stage on several IPUs has concurrent parts."""
    parts = [_numbers(stage.replace("+", ","), "--mapping", int) for stage in text.split(",")]
    return [ipus[0] if len(ipus) == 1 else ipus for ipus in parts]


def _numbers(text: str, option: str, number: Callable[[str], Number]) -> list[Number]:
    try:
        return [number(part) for part in text.split(",")]
    except ValueError:
        raise EmulatorError(f"{option} {text}: not a list of numbers; use for example 0,1,2") from None


def _stage_times(forward: str | None, backward: str | None, stages: int) -> StageTimes:
    from ipu_emu.program.schedules.schedule_timing import StageTimes

    forwards = [1.0] * stages if forward is None else _numbers(forward, "--forward", float)
    backwards = [2 * time for time in forwards] if backward is None else _numbers(backward, "--backward", float)
    for option, times in (("--forward", forwards), ("--backward", backwards)):
        if len(times) != stages:
            raise EmulatorError(f"{option} has {len(times)} times for {stages} stages; give one per stage")
    return StageTimes(tuple(forwards), tuple(backwards))
