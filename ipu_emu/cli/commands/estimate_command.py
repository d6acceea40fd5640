"""estimate command: ``ipu-emu estimate`` evaluates the formulas of the technical notes, and shows each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gcl.drawing.units import decimal
from ipu_emu.cli.arguments.job_options import byte_count, job_of, job_options, warn_of
from ipu_emu.cli.arguments.model_options import ModelCommand
from ipu_emu.cli.output.printing import print_json, say
from ipu_emu.errors import EmulatorError

if TYPE_CHECKING:
    from ipu_emu.hardware import Generation
    from ipu_emu.predict.estimate import Line

_HELP = """Estimate with closed formulas at nominal rates, without calibration. Give a network, or times that you
know, or only the constant share of a step. Every formula is shown, and always both Amdahl's and Gustafson's law.

MODEL is the name of a network, as ipu-emu predict --list lists them, or an ONNX file.

\b
Examples
  ipu-emu estimate --t-mb 10.4ms --t-ar 4.4ms --batch 20 --accumulation 3 --replicas 64
  ipu-emu estimate --constant 0.5 --compute 4
  ipu-emu estimate --tensor 51114064 --replicas 16
  ipu-emu estimate --tensor 51114064 --replicas 128 --domains 2
  ipu-emu estimate --point 10=108.32ms --point 3=35.55ms
  ipu-emu estimate --layer dense:1000:10 --optimiser adam --batch 4 --dtype float
  ipu-emu estimate --product 4096:4096:4096 --proportion 0.6 --proportion 0.1
  ipu-emu estimate bert-large --ipus 4 --replicas 16 --batch 2 --accumulation 48 --optimiser lamb

ipu-emu predict estimates what a real system reaches.
"""
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def _seconds(text: str) -> float:
    """The seconds of a time such as 10.4ms."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*(s|ms|us|ns)\s*", text)
    if not match:
        raise EmulatorError(f"{text} is not a time; write a number with s, ms, us or ns, such as 10.4ms")
    return float(match[1]) * _UNITS[match[2]]


def _point(text: str) -> tuple[float, float]:
    count, _, time = text.partition("=")
    try:
        return float(int(count)), _seconds(time)
    except ValueError:
        raise EmulatorError(f"--point {text} is not valid; write an accumulation and a time: 10=108.32ms") from None


@click.command(cls=ModelCommand, help=_HELP, short_help="Closed formulas for throughput, laws, memory.")
@click.argument("model", required=False)
@job_options
@click.option("--t-mb", metavar="TIME", help="Time of a micro-batch.")
@click.option("--t-ar", metavar="TIME", help="Time of the all-reduce and the weight update.")
@click.option("--constant", type=float, help="Share of the time that is constant, 0 to 1.")
@click.option("--compute", type=float, default=2.0, show_default=True, help="By how much the rest becomes faster.")
@click.option("--tensor", metavar="BYTES", help="Bytes to reduce: T_AR by the rule, the ring, between domains.")
@click.option("--rate", metavar="BYTES/S", help="Link rate per direction.  [default: 29.2GB/s, a rail]")
@click.option("--gateway-rate", metavar="BYTES/S", help="GW-Link rate per IPU.  [default: 6.25GB/s]")
@click.option("--domains", type=click.IntRange(1), default=1, show_default=True, help="IPU-Link domains of --tensor.")
@click.option("--point", "points", multiple=True, metavar="GA=TIME", help="A measured step, to find t and c.")
@click.option("--layer", "layers_", multiple=True, metavar="DENSE:1000:10", help="A layer to count; repeatable.")
@click.option("--product", metavar="M:K:N", help="A matrix product, with its temporary memory and cycles.")
@click.option(
    "--proportion",
    "proportions",
    type=click.FloatRange(0, 1, min_open=True),
    multiple=True,
    default=(0.6, 0.3, 0.1),
    show_default=True,
    help="availableMemoryProportion of --product; repeatable.",
)
@click.option("--activations", type=click.IntRange(0), help="Activations of a sample, of --layer.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def estimate(model: str | None, form: str, **options: Any) -> None:
    """Compute the requested estimate, and print it."""
    lines, table = _lines(model, options)
    if form == "json":
        facts: dict[str, Any] = {"schema": "ipu-emu estimate 1"} | {line.key: line.value for line in lines}
        print_json(facts | {"formulas": {line.key: line.formula for line in lines}, "layers": table})
        return
    say(_estimate_text(lines, table))


def _lines(model: str | None, options: dict[str, Any]) -> tuple[list[Line], list[dict[str, Any]]]:
    """The estimate that the options request."""
    kinds = ["MODEL"] if model is not None else []
    kinds += [name for name, kind in _KINDS.items() if any(options[own] not in (None, ()) for own in kind.own)]
    if len(kinds) != 1:
        listing = " and ".join(kinds) or "nothing"
        raise EmulatorError(
            f"{listing} given; give one of MODEL, --t-mb with --t-ar, --constant, --tensor, --point, --layer, "
            "--product"
        )
    names = [parameter.name or "" for parameter in click.get_current_context().command.params]
    if model is None:
        kind = _KINDS[kinds[0]]
        used = (*kind.own, *kind.others, "form", "model")
        warn_of([name for name in names if name not in used], f"with {kinds[0]}")
        for name in ("batch", "accumulation", "replicas"):
            if name in kind.others and options[name] < 1:
                raise EmulatorError(f"--{name} {options[name]} is not possible; use at least 1")
        return list(kind.lines(options)), []
    from ipu_emu.predict.estimate import lines_of_model, table_of

    warn_of(_NOT_OF_MODELS, "with MODEL")
    job, _ = job_of(model, **{name: value for name, value in options.items() if name not in _NOT_OF_JOBS})
    return list(lines_of_model(job, options["compute"])), table_of(job)


def _times(options: dict[str, Any]) -> Iterable[Line]:
    from ipu_emu.predict.estimate import lines_of_times

    if options["t_mb"] is None or options["t_ar"] is None:
        raise EmulatorError("--t-mb and --t-ar belong together; give both (0s if there is none)")
    others = {name: options[name] for name in ("batch", "accumulation", "replicas", "compute")}
    return lines_of_times(_seconds(options["t_mb"]), _seconds(options["t_ar"]), **others)


def _laws(options: dict[str, Any]) -> Iterable[Line]:
    from ipu_emu.predict.estimate import lines_of_laws

    return lines_of_laws(options["constant"], options["compute"])


def _reduction(options: dict[str, Any]) -> Iterable[Line]:
    from ipu_emu.predict.estimate import LINK_RATE, lines_of_reduction
    from ipu_emu.predict.links import GATEWAY_RATE

    rate, gateway = options["rate"], options["gateway_rate"]
    return lines_of_reduction(
        byte_count(options["tensor"], "--tensor"),
        replicas=options["replicas"],
        domains=options["domains"],
        rate=LINK_RATE if rate is None else byte_count(rate, "--rate"),
        gateway=GATEWAY_RATE if gateway is None else byte_count(gateway, "--gateway-rate"),
    )


def _points(options: dict[str, Any]) -> Iterable[Line]:
    from ipu_emu.predict.estimate import lines_of_points

    return lines_of_points([_point(text) for text in options["points"]])


def _product(options: dict[str, Any]) -> Iterable[Line]:
    from ipu_emu.predict.estimate import lines_of_product

    text = options["product"]
    sizes = text.split(":")
    if len(sizes) != 3 or not all(size.isascii() and size.isdigit() and 0 < int(size) <= 1 << 30 for size in sizes):
        raise EmulatorError(f"--product {text} is not valid; write rows, depth and columns: 4096:1024:1024")
    rows, depth, columns = map(int, sizes)
    return lines_of_product((rows, depth, columns), _itemsize(options), _generation(options), options["proportions"])


def _itemsize(options: dict[str, Any]) -> int:
    from ipu_emu.predict.job import DTYPES

    dtype = options["dtype"] or "float16"
    if dtype not in ("float16", "float"):
        raise EmulatorError(f"dtype '{dtype}' is unknown; use float16, float")
    return DTYPES[dtype]


def _generation(options: dict[str, Any]) -> Generation:
    from ipu_emu.hardware import GC200, System

    system = options["system"]
    return GC200 if system is None else System.named(system, "--system ").generation


def _layers(options: dict[str, Any]) -> Iterable[Line]:
    from ipu_emu.predict.estimate import lines_of_variables, variables_of_layers

    training = not options["inference"]
    return lines_of_variables(
        variables_of_layers(options["layers_"], options["activations"], training=training),
        _itemsize(options),
        batch=options["batch"],
        optimiser=options["optimiser"],
        training=training,
        generation=_generation(options),
    )


@dataclass(frozen=True)
class _Kind:
    """An estimate: the options that ask for it, the others that its formulas read, and its lines."""

    own: tuple[str, ...]
    others: tuple[str, ...]
    lines: Callable[[dict[str, Any]], Iterable[Line]]


_KINDS = {
    "--t-mb": _Kind(("t_mb", "t_ar"), ("batch", "accumulation", "replicas", "compute"), _times),
    "--constant": _Kind(("constant",), ("compute",), _laws),
    "--tensor": _Kind(("tensor",), ("replicas", "domains", "rate", "gateway_rate"), _reduction),
    "--point": _Kind(("points",), (), _points),
    "--layer": _Kind(("layers_",), ("activations", "batch", "dtype", "optimiser", "inference", "system"), _layers),
    "--product": _Kind(("product",), ("proportions", "dtype", "system"), _product),
}
#: Parameters that are not of a job.
_NOT_OF_JOBS = (
    *(name for kind in _KINDS.values() for name in kind.own),
    *("compute", "rate", "gateway_rate", "domains", "activations", "proportions"),
)
#: Parameters that the formulas of a network do not read.
_NOT_OF_MODELS = (
    *("rate", "gateway_rate", "domains", "activations", "proportions"),
    *("schedule", "off_chip", "overlap_io", "stash_dtype", "release"),
)


def _estimate_text(lines: Sequence[Line], table: Sequence[dict[str, Any]]) -> str:
    """All lines, then the layers."""
    values = [_value(line) for line in lines]
    name, number = max(len(line.name) for line in lines), max(map(len, values))
    pairs = zip(lines, values, strict=True)
    rows = [f"{line.name:<{name}}  {value:>{number}}  {line.formula}" for line, value in pairs]
    return "\n".join(rows + (["", *_table(table)] if table else []))


#: How values are printed, by the end of their keys: the first that fits.
_FORMATS: dict[str, Callable[[float], str]] = {
    "seconds_per_sample": lambda value: f"{value * 1e6:,.3f} us",
    "seconds_to_train": lambda value: f"{value / 60:,.1f} min",
    "_seconds": lambda value: f"{value * 1e3:,.3f} ms",
    "_flops": lambda value: decimal(value, "FLOP"),
    "_bytes": lambda value: f"{value:,.0f} B",
    "_percent": lambda value: f"{value:.4g} %",
    "constant_share": lambda value: f"{value:.4f}",
    "largest_residual": lambda value: f"{value:.4f}",
    "_speedup": lambda value: f"{value:.4g}",
    "": lambda value: f"{value:,.0f}",
}


def _value(line: Line) -> str:
    return next(text(line.value) for ending, text in _FORMATS.items() if line.key.endswith(ending))


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    width = max(len(row["block"]) for row in rows)
    head = f"{'block':<{width}}  {'count':>5}  {'parameters':>12}  {'forward':>12}  {'activations':>12}"
    return [head] + [
        f"{row['block']:<{width}}  {row['count']:>5}  {row['parameters']:>12,}  "
        f"{decimal(row['forward_flops'], 'FLOP'):>12}  {row['activation_values']:>12,.0f}"
        for row in rows
    ]
