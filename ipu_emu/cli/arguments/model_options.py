"""Model options: the options of the commands that compile a model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from ipu_emu.compiler.optimisers.optimiser_table import OPTIMISERS
from ipu_emu.program.schedules import SCHEDULES
from popdist_py.messages.named_choice import NamedChoice

if TYPE_CHECKING:
    from ipu_emu.cli.arguments.compile_model import CompileRequest
    from ipu_emu.hardware import System

#: Element types of weights by PopART's names.
DTYPES = {"float16": "float16", "float": "float32"}
#: PopART's names; the first one is the default of the option without a value.
RECOMPUTATIONS = ("Standard", "NormOnly", "Pipeline", "RecomputeAll")
_RECOMPUTE = "--recompute"


def _count(*names: str, help: str) -> Callable[..., Any]:
    """An option whose value is a number from 1 on, by default 1."""
    return click.option(*names, type=click.IntRange(1), default=1, show_default=True, help=help)


_OPTIONS = (
    click.argument("model"),
    click.option("--system", help="Name of a system, as for ipu-emu info.  [default: $IPU_EMU_SYSTEM, else pod16]"),
    _count("--batch", help="Samples per micro-batch; an ONNX file may fix them."),
    click.option(
        "--dtype",
        type=NamedChoice(list(DTYPES)),
        default="float16",
        show_default=True,
        help="Element type of the weights of a named model.",
    ),
    click.option("--inference", is_flag=True, help="Compile the forward pass only."),
    click.option("--loss", help="Id of the loss tensor of an ONNX file."),
    click.option(
        "--optimiser",
        type=NamedChoice(list(OPTIMISERS)),
        default="sgd",
        show_default=True,
        help="Optimiser of the weight update.",
    ),
    _count("--accumulation", help="Micro-batches per weight update; with --inference per step."),
    _count("--replicas", help="Total number of replicas."),
    _count("--ipus", "--ipus-per-replica", "ipus", help="IPUs per replica."),
    click.option(
        "--schedule",
        type=NamedChoice(list(SCHEDULES)),
        help="Pipeline schedule.  [default: no pipeline; the IPUs of a replica work one after the other]",
    ),
    click.option(
        _RECOMPUTE,
        type=NamedChoice(RECOMPUTATIONS, case_sensitive=False),
        help="Recompute activations in the backward pass; without a value, Standard.",
    ),
    click.option(
        "--off-chip",
        type=NamedChoice(["weights", "states", "activations", "accumulators"]),
        multiple=True,
        help="Keep these in Streaming Memory; may be repeated.",
    ),
    click.option(
        "--shared",
        type=NamedChoice(["weights", "states"]),
        multiple=True,
        help="Shard these over the replicas; may be repeated.",
    ),
    _count("--bn-span", help="Replicas that share batch statistics."),
    _count("--prefetch", help="Buffers of each input in Streaming Memory, which the host fills ahead of time."),
    click.option(
        "--placement",
        metavar="3,7,7,7",
        help="Layers on each IPU, or balanced. Tied logits stay with their table.  [default: the annotations of a "
        "file, else balanced]",
    ),
    click.option(
        "--length", type=click.IntRange(1), help="Tokens per sequence of a named model.  [default: its own]"
    ),
    click.option(
        "--masked", type=click.IntRange(1), help="Positions of a sequence of BERT that get logits.  [default: 15.6 %]"
    ),
)


class ModelCommand(click.Command):
    """A command in which ``--recompute`` needs no value, and which prints each warning as one line."""

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            done = super().invoke(ctx)
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            click.echo(f"Warning: {text}", err=True)
        return done

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        kinds = {kind.lower() for kind in RECOMPUTATIONS}
        pairs = zip_longest(args, args[1:], fillvalue="")
        alone = f"{_RECOMPUTE}={RECOMPUTATIONS[0]}"
        end = args.index("--") if "--" in args else len(args)  # a program and its options follow
        words = [alone if word == _RECOMPUTE and after.lower() not in kinds else word for word, after in pairs]
        words[end:] = args[end:]
        return super().parse_args(ctx, words)


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def selection_order_option(default: str, about: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option for the order in which IPUs of a replica follow each other on the ladder."""
    orders = NamedChoice(["auto", "zigzag", "snake", "hoof"])
    return click.option("--selection-order", type=orders, default=default, show_default=True, help=about)


def compile_request(**options: Any) -> CompileRequest:
    """The compile request of the options, or of a program."""
    from ipu_emu.cli.arguments.compile_model import CompileRequest
    from ipu_emu.cli.arguments.traced_program import TracedProgram, is_program

    if is_program(options["model"]):
        return TracedProgram.of(options["model"])
    settings = {name: value for name, value in options.items() if value is not None}
    settings |= {"dtype": DTYPES[settings["dtype"]], "training": not settings.pop("inference")}
    return CompileRequest(**settings)


def system_named(name: str | None) -> System:
    """The system called ``name``, or the one that the environment selects."""
    from ipu_emu.hardware import System

    return System.from_environ(os.environ) if name is None else System.named(name, "--system ")
