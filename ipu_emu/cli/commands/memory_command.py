"""memory command: ``ipu-emu memory`` compiles a model and shows the memory of each IPU over the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcl.drawing.units import memory as amount
from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.cli.arguments.model_options import ModelCommand, compile_request, model_options, system_named
from ipu_emu.cli.output.printing import console, print_json, say, write
from ipu_emu.compiler.delayed_reports import DelayedReports
from ipu_emu.hardware import System
from ipu_emu.models import CATALOGUE
from ipu_emu.program.clock.machine import WIDEST
from ipu_emu.session.footprint import MemoryNeed
from ipu_emu.session.memory_remedies import Change, Remedies, RemedyKind, find_remedies

if TYPE_CHECKING:
    from ipu_emu.cli.arguments.compile_model import CompiledModel, CompileRequest
    from ipu_emu.hardware import System
    from ipu_emu.predict.prediction import Prediction
from popdist_py.messages.named_choice import NamedChoice

_HELP = """Compile a model without running it, and show the memory of each IPU of a replica: persistent data
(weights, optimiser states, gradients that are reduced), stashes and FIFOs of a pipeline, and transient data.

MODEL is a name that ipu-emu models lists, an ONNX file, or a TensorFlow program (train.py), which is traced without
running; only the options for the output then have an effect.

\b
Examples
  ipu-emu memory resnet50 --batch 4 --optimiser momentum
  ipu-emu memory bert-base --ipus 4 --schedule popart --accumulation 16
  ipu-emu memory model.onnx --inference --format json
  ipu-emu memory mlp --batch 32 --output plan.svg

Variables, gradients, stashes, FIFOs and transient data are what the emulator allocates, without the scratch memory
of its kernels, which an IPU does not need. Code, vertices and exchange buffers are estimates of what a real IPU
needs in addition. If a model does not fit, remedies are listed.
"""


@click.command(cls=ModelCommand, help=_HELP, short_help="The memory of a model on each IPU.")
@model_options
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture as well: .svg, .html or .png."
)
@click.option("--format", "form", type=NamedChoice(["text", "json"]), default="text", show_default=True)
def memory(system: str | None, output: Path | None, form: str, **options: Any) -> None:
    """Compile the model and print its memory plan."""
    where = system_named(system)
    from ipu_emu.cli.output.memory_svg import picture
    from ipu_emu.cli.output.memory_text import text
    from ipu_emu.predict.report import facts
    from ipu_emu.program.clock import ModelledMachine
    from ipu_emu.session.memory_liveness import ipu_memories

    request = compile_request(**options)
    ModelledMachine(where, request.replicas, request.ipus)  # raises an error if it does not fit
    with DelayedReports() as report:
        report(f"compiling {request.title}")
        compiled = request.compiled(where)
    memories = ipu_memories(compiled.executable, where.tiles_per_ipu)
    sram = where.generation.sram
    estimate, predicted = request.estimated(), request.predicted(where)
    if form == "json":
        print_json(
            {
                "model": request.model,
                "system": where.name,
                "sram_bytes_per_ipu": sram,
                "estimated_bytes": estimate,
                "predicted": None if predicted is None else facts(predicted)["memory"],
                "ipus": [
                    {
                        "ipu": m.ipu,
                        "bytes": m.total,
                        "fits": m.total <= sram,
                        "parts": m.parts,
                        "live": m.live,
                        "streaming_bytes": m.streaming,
                    }
                    for m in memories
                ],
            }
        )
    else:
        console().print(text(request.title, memories, where, console().width))
    if form == "json" and output is None:
        return
    notes = _notes(request, where, compiled, predicted, sum(plan.data + plan.streaming for plan in memories))
    if form == "text" and notes:
        say(f"\n{notes}")
    if output is not None:
        write(output, picture(output, request.title, memories, where, notes))


def _notes(
    request: CompileRequest, where: System, compiled: CompiledModel, predicted: Prediction | None, planned: int
) -> str:
    """The notes below the plan: other estimates, and advice for a model that does not fit."""
    estimate, lines = request.estimated(), list[str]()
    if estimate is not None:
        lines.append(f"data per replica: {amount(planned)} in this plan, {amount(estimate)} estimated by formula")
    if predicted is not None:
        lines.append(_said(predicted))
    if not compiled.need.fits:
        lines += ["", _advice(request, where, compiled)]
    return "\n".join(lines)


def _said(predicted: Prediction) -> str:
    """The bounds of the predicted memory."""
    worst = predicted.fullest
    return (
        f"ipu-emu predict: {predicted.verdict}, IPU {worst.ipu} needs {amount(worst.low)} (a program "
        f"written for IPUs, least code) to {amount(worst.high)} (all left to the compiler, most code)"
    )


def _advice(request: CompileRequest, where: System, compiled: CompiledModel) -> str:
    """The advice for a model that does not fit."""
    from ipu_emu.session.footprint import too_large_for_an_ipu

    note = too_large_for_an_ipu(compiled.executable, compiled.need.limit)
    with DelayedReports() as report:
        advice = remedies(request, where, compiled.need, lambda flags: report(f"trying {flags}"))
    return f"{note}\n\n{advice}" if note else str(advice)


_OFF_CHIP = {
    RemedyKind.STATES_OFF_CHIP: "states",
    RemedyKind.ACCUMULATORS_OFF_CHIP: "accumulators",
    RemedyKind.ACTIVATIONS_OFF_CHIP: "activations",
    RemedyKind.WEIGHTS_OFF_CHIP: "weights",
}


def remedies(request: CompileRequest, system: System, now: MemoryNeed, progress: Callable[[str], None]) -> Remedies:
    """Return the flags that make ``request``, which needs ``now``, fit ``system``; each one is tried by compiling."""

    def need(other: CompileRequest) -> MemoryNeed:
        return other.compiled(system).need

    return find_remedies(request, list(_changes(request, system)), need, now=now, progress=progress)


def _changes(request: CompileRequest, system: System) -> Iterator[Change[CompileRequest]]:
    """Yield the flags that were not given; those for training only if the request is for training."""
    has_states = request.training and request.optimiser != "sgd"
    if has_states and request.replicas > 1 and "states" not in request.shared:
        yield _off_or_shared(RemedyKind.STATES_SHARDED, "shared", "states")
    for kind, what in _OFF_CHIP.items() if system.generation.streaming_memory else ():
        there = {"states": has_states, "accumulators": request.training and request.accumulation > 1}
        if there.get(what, request.training) and what not in request.off_chip:
            yield _off_or_shared(kind, "off_chip", what)
    if request.batch_is_free:
        yield from _smaller_batches(request)
    if request.model in CATALOGUE and request.dtype == "float32":
        yield Change(RemedyKind.FLOAT16, "--dtype float16", partial(replace, dtype="float16"))
    if request.training and not request.recompute:
        yield Change(RemedyKind.RECOMPUTE, "--recompute", partial(replace, recompute="Standard"))
    yield from _more_ipus(request, min(WIDEST, system.ipus // request.replicas))


def _off_or_shared(kind: RemedyKind, field: str, what: str) -> Change[CompileRequest]:
    flag = f"--{field.replace('_', '-')} {what}"
    return Change(kind, flag, lambda request: replace(request, **{field: (*getattr(request, field), what)}))


def _smaller_batches(request: CompileRequest) -> Iterator[Change[CompileRequest]]:
    """Yield micro-batches of a half, a quarter and so on, with the same number of samples per weight update."""
    batch, accumulation = request.micro_batch, request.accumulation
    while batch % 2 == 0:
        batch, accumulation = batch // 2, accumulation * 2
        advice = f"--batch {batch} --accumulation {accumulation}"
        yield Change(RemedyKind.MICRO_BATCH, advice, partial(replace, batch=batch, accumulation=accumulation))


def _more_ipus(request: CompileRequest, most: int) -> Iterator[Change[CompileRequest]]:
    ipus = 2 * request.ipus
    while ipus <= most:
        yield Change(RemedyKind.MORE_IPUS, f"--ipus {ipus}", partial(replace, ipus=ipus))
        ipus *= 2
