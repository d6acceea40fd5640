"""compile command: ``ipu-emu compile`` runs the passes of the compiler on a model and prints their result."""

from __future__ import annotations

from typing import Any

import click

from ipu_emu.cli.arguments.model_options import ModelCommand, compile_request, model_options, system_named
from ipu_emu.cli.output.printing import print_json, say
from popdist_py.messages.named_choice import NamedChoice

_HELP = """Compile a model without running it, and print the result: the ops of a graph, the program of a step, or the
program and the memory plan.

MODEL is a name that ipu-emu models lists, an ONNX file, or a TensorFlow program (train.py), which is traced without
running; only the options for the output then have an effect.

\b
Examples
  ipu-emu compile --list
  ipu-emu compile mlp --stop-after expand
  ipu-emu compile mlp --optimiser momentum --stop-after update-weights
  ipu-emu compile transformer --ipus 2 --schedule popart --accumulation 8 --stop-after lower
  ipu-emu compile mlp

The program is the one that the emulator runs; the memory plan gives the address of each tensor.
"""


def _list(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """With ``--list``, print the passes in the requested format and exit; called for both options, in any order."""
    values = context.meta.setdefault(__name__, {})
    values[parameter.name] = value
    if len(values) == 2 and values["list"]:
        _print_passes(values["form"])
        context.exit()
    return value


def _print_passes(form: str) -> None:
    from ipu_emu.compiler.pipeline import PASSES

    if form == "json":
        print_json([{"name": row.name, "summary": row.summary} for row in PASSES])
        return
    width = max(len(row.name) for row in PASSES)
    for number, row in enumerate(PASSES, 1):
        say(f"{number:>2}  {row.name:<{width}}  {row.summary}")


@click.command(cls=ModelCommand, help=_HELP, short_help="The result of each compiler pass.")
@model_options
@click.option("--stop-after", metavar="PASS", help="Print the result of this pass.  [default: the last pass]")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the passes.")
@click.option(
    "--format",
    "form",
    type=NamedChoice(["text", "json"]),
    default="text",
    show_default=True,
    is_eager=True,
    callback=_list,
)
def compile(system: str | None, stop_after: str | None, form: str, **options: Any) -> None:
    """Compile up to the requested pass, and print the result."""
    where = system_named(system)
    from ipu_emu.compiler.pipeline import PASSES, pass_named
    from ipu_emu.program.clock import ModelledMachine

    last = pass_named(stop_after or PASSES[-1].name)
    request = compile_request(**options)
    ModelledMachine(where, request.replicas, request.ipus)  # raises an error if it does not fit
    state = request.compiled_until(last.name, where)
    if form == "json":
        print_json({"model": request.model, "passes": state.done, "form": state.form, "listing": str(state)})
        return
    ran = "" if last.name in state.done else ", which these options do not need"
    say(f"{request.title}\nafter {last.name} ({last.summary}){ran}\n")
    say(str(state))
