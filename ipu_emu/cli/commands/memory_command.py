"""memory command: ``ipu-emu memory`` compiles a model and shows the memory of each IPU over the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcl.drawing.units import memory as amount
from ipu_emu.cli.arguments.model_options import ModelCommand, compile_request, model_options, system_named
from ipu_emu.cli.output.printing import console, print_json, say, write
from ipu_emu.compiler.delayed_reports import DelayedReports
from ipu_emu.errors import EmulatorError
from popdist_py.messages.named_choice import NamedChoice

if TYPE_CHECKING:
    from ipu_emu.cli.arguments.compile_model import CompiledModel, CompileRequest
    from ipu_emu.hardware import System
    from ipu_emu.predict.prediction import Prediction
    from ipu_emu.session.footprint import MemoryNeed
    from ipu_emu.session.memory_remedies import Remedies

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
  ipu-emu memory transformer --sweep batch=1,2,4 --sweep layers=1..4 --sweep replicas=1,2,4,8

Variables, gradients, stashes, FIFOs and transient data are what the emulator allocates, without the scratch memory
of its kernels, which an IPU does not need. Code, vertices and exchange buffers are estimates of what a real IPU
needs in addition. If a model does not fit, remedies are listed.
"""


@click.command(cls=ModelCommand, help=_HELP, short_help="The memory of a model on each IPU.")
@model_options
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture as well: .svg, .html or .png."
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="layers=1..4",
    help="Let batch, layers or replicas grow alone, and show how data, code and exchange do; may be repeated.",
)
@click.option("--format", "form", type=NamedChoice(["text", "json"]), default="text", show_default=True)
def memory(system: str | None, output: Path | None, sweeps: tuple[str, ...], form: str, **options: Any) -> None:
    """Compile the model and print its memory plan."""
    where = system_named(system)
    if sweeps:
        _print_growth(compile_request(**options), where, sweeps, output, form)
        return
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


def _print_growth(
    request: CompileRequest, system: System, sweeps: tuple[str, ...], output: Path | None, form: str
) -> None:
    """Compile the model in all sizes, and print the memory of the fullest IPU of each."""
    from ipu_emu.cli.output.memory_text import growth_text
    from ipu_emu.models import CATALOGUE

    if output is not None or request.model not in CATALOGUE:
        raise EmulatorError("--sweep is for models by name, and prints a table; leave out --output, and name a model")
    with DelayedReports() as report:
        rows = list(_growth(request, system, sweeps, report))
    if form == "json":
        print_json({"model": request.model, "system": system.name, "sizes": rows})
    else:
        console().print(growth_text(rows))


def _growth(
    request: CompileRequest, system: System, sweeps: tuple[str, ...], report: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Bytes of the fullest IPU by kind, for each size."""
    from ipu_emu.predict.search import sweep_values
    from ipu_emu.session.memory_liveness import ESTIMATED, ipu_memories

    for name, values in (sweep_values(text, ("batch", "layers", "replicas")) for text in sweeps):
        for value in values:
            report(f"compiling {name} {value}")
            size: dict[str, Any] = {name: value}
            executable = replace(request, **size).compiled(system).executable
            fullest = max(ipu_memories(executable, system.tiles_per_ipu), key=lambda memory: memory.total)
            estimates = {f"{part.lower().replace(' ', '_')}_bytes": fullest.parts[part] for part in ESTIMATED}
            yield (
                {"grown": name, "value": value, "data_bytes": fullest.data}
                | estimates
                | {"total_bytes": fullest.total}
            )


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


def remedies(request: CompileRequest, system: System, now: MemoryNeed, progress: Callable[[str], None]) -> Remedies:
    """Return the flags that make ``request``, which needs ``now``, fit ``system``; each one is tried by compiling."""
    from ipu_emu.cli.arguments.memory_changes import memory_changes
    from ipu_emu.models import CATALOGUE
    from ipu_emu.session.memory_remedies import find_remedies

    def need(other: CompileRequest) -> MemoryNeed:
        return other.compiled(system).need

    changes = memory_changes(
        request,
        system,
        batch_is_free=request.batch_is_free,
        is_float=request.model in CATALOGUE and request.dtype == "float32",
        recompute="Standard",
    )
    return find_remedies(request, list(changes), need, now=now, progress=progress)
