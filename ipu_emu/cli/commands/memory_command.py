"""memory command: ``ipu-emu memory`` compiles a model and shows the memory of each IPU over the program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gcl.drawing.units import memory as amount
from ipu_emu.cli.arguments.model_options import ModelCommand, compile_request, model_options, system_named
from ipu_emu.cli.output.printing import console, print_json, say, write
from ipu_emu.compiler.delayed_reports import DelayedReports

if TYPE_CHECKING:
    from ipu_emu.cli.arguments.compile_model import CompiledModel, CompileRequest
    from ipu_emu.hardware import System
    from ipu_emu.predict.prediction import Prediction
from popdist_py.messages.named_choice import NamedChoice

__all__ = ["memory"]

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
    from ipu_emu.program.memory_liveness import ipu_memories

    asked = compile_request(**options)
    ModelledMachine(where, asked.replicas, asked.ipus)  # raises an error if it does not fit
    with DelayedReports() as report:
        report(f"compiling {asked.title}")
        compiled = asked.compiled(where)
    memories = ipu_memories(compiled.executable, where.tiles_per_ipu)
    sram = where.generation.sram
    estimate, predicted = asked.estimated(), asked.predicted(where)
    if form == "json":
        print_json(
            {
                "model": asked.model,
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
        console().print(text(asked.title, memories, where, console().width))
    if form == "json" and output is None:
        return
    notes = _notes(asked, where, compiled, predicted, sum(each.data + each.streaming for each in memories))
    if form == "text" and notes:
        say(f"\n{notes}")
    if output is not None:
        write(output, picture(output, asked.title, memories, where, notes))


def _notes(
    asked: CompileRequest, where: System, compiled: CompiledModel, predicted: Prediction | None, planned: int
) -> str:
    """The notes below the plan: other estimates, and advice for a model that does not fit."""
    estimate, lines = asked.estimated(), list[str]()
    if estimate is not None:
        lines.append(f"data per replica: {amount(planned)} in this plan, {amount(estimate)} estimated by formula")
    if predicted is not None:
        lines.append(_said(predicted))
    if not compiled.need.fits:
        lines += ["", _advice(asked, where, compiled)]
    return "\n".join(lines)


def _said(predicted: Prediction) -> str:
    """The bounds of the predicted memory."""
    worst = predicted.fullest
    return (
        f"ipu-emu predict: {predicted.verdict}, IPU {worst.ipu} needs {amount(worst.low)} (a program "
        f"written for IPUs, least code) to {amount(worst.high)} (all left to the compiler, most code)"
    )


def _advice(asked: CompileRequest, where: System, compiled: CompiledModel) -> str:
    """The advice for a model that does not fit."""
    from ipu_emu.cli.arguments.memory_flags import remedies
    from ipu_emu.compiler.memory.out_of_memory import too_large_for_an_ipu

    note = too_large_for_an_ipu(compiled.executable, compiled.need.limit)
    with DelayedReports() as report:
        found = remedies(asked, where, compiled.need, lambda flags: report(f"trying {flags}"))
    return f"{note}\n\n{found}" if note else str(found)
