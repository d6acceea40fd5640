"""models: ``ipu-emu models`` lists the networks that can be built by name, and what they weigh."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from gcl.drawing.units import decimal
from ipu_emu.cli.output.printing import console, print_json

if TYPE_CHECKING:
    from ipu_emu.models import Counts

__all__ = ["DTYPES", "models"]

#: PopART's names of the element types that weights may have.
DTYPES = {"float16": "float16", "float": "float32"}

_HELP = """List the networks that can be built by name: parameters, FLOPs and activations of one sample.

\b
Examples
  ipu-emu models                            all of them
  ipu-emu models bert-base                  one
  ipu-emu models --format json --dtype float

\b
Columns
  parameters    trained weights, without the classifiers that only pre-training needs (heads)
  statistics    moving averages of batch normalisation
  per sample    operations of the forward pass, a multiplication and an addition counted as two;
                a training step takes about three times as many
  activations   bytes of all that the forward pass of one sample makes, views apart: what training keeps
                without recomputation

Nothing is allocated or run for this. In Python: ipu_emu.models.named("bert-base", batch=2, seed=0).
"""


@click.command(help=_HELP, short_help="Networks by name, and what they weigh.")
@click.argument("name", required=False)
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="float16", show_default=True)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def models(name: str | None, dtype: str, form: str) -> None:
    """Build, count, print."""
    from ipu_emu.models import CATALOGUE, Counts, named

    names = list(CATALOGUE) if name is None else [name]
    counted = {each: Counts.of(named(each, dtype=DTYPES[dtype])) for each in names}
    if form == "json":
        print_json([_facts(each, counts) for each, counts in counted.items()])
    else:
        console().print(_table(counted, {each: CATALOGUE[each].summary for each in names}))


def _facts(name: str, counts: Counts) -> dict[str, Any]:
    from ipu_emu.models import CATALOGUE

    return {
        "name": name,
        "summary": CATALOGUE[name].summary,
        "parameters": counts.parameters,
        "head_parameters": counts.heads,
        "non_trainable": counts.statistics,
        "parameter_bytes": counts.parameter_bytes,
        "flops_per_sample": counts.flops,
        "activation_bytes_per_sample": counts.activations,
        "ops": counts.ops,
    }


def _table(counted: dict[str, Counts], summaries: dict[str, str]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    for name in ("parameters", "heads", "statistics", "per sample", "activations", "ops"):
        table.add_column(name, justify="right")
    table.add_column("what it is", style="dim")
    for name, counts in counted.items():
        table.add_row(name, *_cells(**asdict(counts)), summaries[name])
    return table


def _cells(
    parameters: int, heads: int, statistics: int, parameter_bytes: int, flops: int, activations: int, ops: int
) -> list[str]:
    numbers = [f"{number:,}" if number else "-" for number in (parameters, heads, statistics)]
    return [*numbers, decimal(flops, "FLOP"), decimal(activations, "B"), f"{ops:,}"]
