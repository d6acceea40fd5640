"""models command: ``ipu-emu models`` lists the models that can be built by name, and their size."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from gcl.drawing.units import decimal, memory
from ipu_emu.cli.arguments.model_options import DTYPES
from ipu_emu.cli.output.printing import console, print_json

if TYPE_CHECKING:
    from ipu_emu.models import ModelSize
from popdist_py.messages.named_choice import NamedChoice

_HELP = """List the models that can be built by name, with their parameters, FLOPs and activations per sample.

\b
Examples
  ipu-emu models                            all models
  ipu-emu models bert-base                  one model
  ipu-emu models --format json --dtype float

\b
Columns
  parameters        trained weights, without heads
  heads             trained weights of classifiers that only pre-training needs
  statistics        moving averages of batch normalisation
  FLOPs/sample      operations of the forward pass; a multiply-add counts as two. Training takes about
                    three times as many
  activations       bytes of all outputs of ops in the forward pass of one sample, without views: what training
                    keeps without recomputation

No memory is allocated for the weights. In Python: ipu_emu.models.named("bert-base", batch=2, seed=0).
"""


@click.command(help=_HELP, short_help="Models by name, and their size.")
@click.argument("name", required=False)
@click.option(
    "--dtype",
    type=NamedChoice(list(DTYPES)),
    default="float16",
    show_default=True,
    help="Element type of weights and activations.",
)
@click.option("--format", "form", type=NamedChoice(["text", "json"]), default="text", show_default=True)
def models(name: str | None, dtype: str, form: str) -> None:
    """Build the models and print their sizes."""
    from ipu_emu.models import CATALOGUE, ModelSize, named

    names = list(CATALOGUE) if name is None else [name]
    sizes = {model: ModelSize.of(named(model, dtype=DTYPES[dtype])) for model in names}
    if form == "json":
        print_json([_facts(model, size) for model, size in sizes.items()])
    else:
        console().print(_table(sizes, {model: CATALOGUE[model].summary for model in names}))


def _facts(name: str, size: ModelSize) -> dict[str, Any]:
    from ipu_emu.models import CATALOGUE

    return {
        "name": name,
        "summary": CATALOGUE[name].summary,
        "parameters": size.parameters,
        "head_parameters": size.heads,
        "non_trainable": size.statistics,
        "parameter_bytes": size.parameter_bytes,
        "flops_per_sample": size.flops,
        "activation_bytes_per_sample": size.activations,
        "ops": size.ops,
    }


def _table(sizes: dict[str, ModelSize], summaries: dict[str, str]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    for name in ("parameters", "heads", "statistics", "FLOPs/sample", "activations", "ops"):
        table.add_column(name, justify="right")
    table.add_column("description", style="dim")
    for name, size in sizes.items():
        table.add_row(name, *_cells(**asdict(size)), summaries[name])
    return table


def _cells(
    parameters: int, heads: int, statistics: int, parameter_bytes: int, flops: int, activations: int, ops: int
) -> list[str]:
    numbers = [f"{number:,}" if number else "-" for number in (parameters, heads, statistics)]
    return [*numbers, decimal(flops, "FLOP"), memory(activations), f"{ops:,}"]
