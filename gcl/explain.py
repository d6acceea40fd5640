"""Explanation: ``python -m gcl.explain`` draws the schedule of a collective: rings, exchanges, fragments sent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from gcl.cli.moving_values import animated, frames, values_text
from gcl.cli.output_file import check_writable, write_text
from gcl.cli.svg_diagram import picture
from gcl.cli.usage_errors import UsageErrors
from gcl.core.groups import Group
from gcl.core.request import Collective
from gcl.cost.program_cost import Cost, Price, price
from gcl.cost.tile_work import TileWork
from gcl.drawing.terminal_help import FittedContext
from gcl.drawing.terminal_text import fitted, terminal_width
from gcl.drawing.units import TimeUnit, counted, parse_bytes
from gcl.errors import ArgumentError
from gcl.fabric.fabric import MAX_DOMAIN, Fabric, LinkConfiguration, Topology
from gcl.kernels.dtypes import DTYPES
from gcl.scheduling.methods.method import Method, method_chain
from gcl.scheduling.options import Options
from gcl.scheduling.phases import ProgramPhase
from gcl.scheduling.program.text_diagram import columns, exchange_table, ladder
from gcl.scheduling.schedule import Schedule, schedule
from popdist_py.messages.named_choice import NamedChoice
from popdist_py.messages.short_commands import ShortMessages

__all__ = ["explanation", "main"]

_ITEM_BYTES = {str(dtype): dtype.itemsize for dtype in DTYPES}
_LADDERS = {
    "mesh": (Topology.MESH, LinkConfiguration.DEFAULT),
    "torus": (Topology.TORUS, LinkConfiguration.DEFAULT),
    "barley_twist": (Topology.TORUS, LinkConfiguration.BARLEY_TWIST),
}

_SIZE = "51e6"
#: Sizes that are computed and drawn within seconds; _MOST_WAYS: transfers where every member sends to every other.
_MOST_REPLICAS, _MOST_DOMAINS, _MOST_IPUS, _MOST_WAYS = 1024, 64, 4096, 1 << 16

_HELP = """Draw the schedule with which GCL would run a collective on IPUs, and show its modelled cost.

\b
Examples
  python -m gcl.explain --replicas 16 --bytes 51e6
      the methods that GCL chooses for 51e6 bytes of FP16 gradients, step by step
  python -m gcl.explain --replicas 8 --method meet_in_middle_ring --bytes 1MiB
      one method, whatever the size
  python -m gcl.explain --replicas 32 --num-ilds 2 --bytes 51e6 --svg out.svg
      the phases within and between two IPU-Link domains, and a picture of them
  python -m gcl.explain --replicas 4 --method clockwise_ring --values --svg moving.svg
      small numbers as data: what every replica sends, adds and holds, and an animation of it

\b
How to read a table
  columns are replicas in ring order, rows are exchanges (all replicas at once)
  a cell is the fragment that the replica sends, named by the replica that owns it;
  with several directions one after the other, as in 3/1
  (2) is sent but not used; - means that nothing is sent

Times are modelled (links, hops, syncs and tiles of a Bow Pod), not measured. The command reads
GCL_OPTIONS and GCL_NUM_IO_TILES.
"""


@click.command(
    cls=ShortMessages, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--replicas", type=click.IntRange(1, _MOST_REPLICAS), default=16, show_default=True, help="Number of replicas."
)
@click.option(
    "--bytes",
    "size",
    help=f"Size of a replica's tensor (all_gather: shard).  [default: {_SIZE}]",
)
@click.option("--method", help=f"{', '.join(Method)}; a chain: A,B.  [default: GCL_OPTIONS, else auto]")
@click.option("--collective", type=NamedChoice(list(map(str, Collective))), default="all_reduce", show_default=True)
@click.option("--dtype", type=NamedChoice(list(_ITEM_BYTES)), default="float16", show_default=True)
@click.option("--ipus-per-replica", type=int, default=1, show_default=True, help="1, 2, 4, 8 or 16.")
@click.option(
    "--topology",
    type=NamedChoice(list(_LADDERS)),
    help="mesh, torus or barley_twist.  [default: torus for domains of 64 IPUs, else mesh]",
)
@click.option(
    "--num-ilds",
    type=click.IntRange(1, _MOST_DOMAINS),
    help="IPU-Link domains.  [default: the fewest that hold the IPUs]",
)
@click.option("--group", "group_text", default="all", show_default=True, help="all, consecutive:K or orthogonal:K.")
@click.option(
    "--values",
    is_flag=True,
    help="Run it on small numbers and show how they move; without --bytes, two per fragment.",
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture to this file as well.")
@click.option("--width", type=click.IntRange(min=40), help="Columns of text.  [default: the terminal's]")
def main(
    replicas: int,
    size: str | None,
    method: str | None,
    collective: str,
    dtype: str,
    ipus_per_replica: int,
    topology: str | None,
    num_ilds: int | None,
    group_text: str,
    values: bool,
    svg: Path | None,
    width: int | None,
) -> None:
    """Parse the options, make the schedule, print it."""
    faults = UsageErrors()
    ilds = num_ilds or -(-replicas * max(1, ipus_per_replica) // MAX_DOMAIN)
    options = faults.of(lambda: Options.from_environ(os.environ))
    chain = faults.of(lambda: method_chain(Method.AUTO if method is None else method))
    nbytes = faults.of(lambda: _size_bytes(size, Collective(collective), replicas, dtype, values=values))
    group = faults.of(lambda: _group(group_text, replicas))
    fabric = faults.of(lambda: _fabric(replicas, ipus_per_replica, ilds, topology))
    faults.of(lambda: check_writable(svg, "--svg"))
    faults.check()
    if options is None or chain is None or nbytes is None or group is None or fabric is None:
        raise faults.error()
    if method is None:
        chain = options.method
    faults.of(lambda: _check_ways(Collective(collective), group))
    faults.check()
    itemsize = _ITEM_BYTES[dtype]
    elements = -(-nbytes // itemsize)
    plan = faults.of(
        lambda: schedule(
            Collective(collective), fabric, elements, itemsize=itemsize, group=group, methods=chain, options=options
        )
    )
    if plan is None:
        raise faults.error()
    _show(plan, dtype, faults, values=values, svg=svg, width=width)


def _size_bytes(size: str | None, collective: Collective, replicas: int, dtype: str, *, values: bool) -> int:
    """The bytes of ``--bytes``; shown values have two elements per fragment if it is not given."""
    if values and size is None:
        return 2 * (1 if collective is Collective.ALL_GATHER else replicas) * _ITEM_BYTES[dtype]
    return parse_bytes(size or _SIZE, "--bytes")


def _show(
    plan: Schedule, dtype: str, faults: UsageErrors, *, values: bool, svg: Path | None, width: int | None
) -> None:
    """Print the schedule, or with ``values`` how numbers move in it, and draw it if a file is given."""
    costs, reason = _priced(plan)
    shown = faults.of(lambda: frames(plan, costs)) if values else None
    faults.check()
    if svg is not None:
        title = _title(plan, dtype)
        drawn = picture(plan, title, _subtitle(plan), costs) if shown is None else animated(shown, title)
        faults.of(lambda: write_text(svg, drawn, "--svg"))
        faults.check()
    if shown is not None:
        text = f"{_title(plan, dtype)}\n{_subtitle(plan)}\n\n{values_text(shown)}"
    else:
        text = explanation(
            plan, dtype, costs, reason, width or terminal_width() or shutil.get_terminal_size((100, 24)).columns
        )
    click.echo(fitted(text, width or terminal_width()))
    if svg is not None:
        click.echo(f"\npicture: {svg}")


def explanation(schedule: Schedule, dtype: str, costs: Price | None, reason: str, width: int) -> str:
    """The text: fabric, each phase, total; ``reason`` explains why ``costs`` is None."""
    parts = [f"{_title(schedule, dtype)}\n{_subtitle(schedule)}", ladder(schedule.fabric, width)]
    for number, phase in enumerate(schedule.phases):
        cost = None if costs is None else costs.phases[number]
        parts.append(_phase_text(schedule, phase, number, cost, width))
    if costs is None:
        parts.append(f"modelled time: none ({reason})")
    else:
        parts.append(
            f"modelled time {_modelled_time(costs.total)}\n{schedule.bytes_sent(0):,} bytes sent per replica"
        )
    return "\n\n".join(parts)


def _title(schedule: Schedule, dtype: str) -> str:
    fabric, nbytes = schedule.fabric, schedule.elements * schedule.itemsize
    ipus = counted(fabric.ipus_per_replica, "IPU")
    return (
        f"{schedule.collective} of {nbytes:,} bytes ({schedule.elements:,} {dtype}) per replica, "
        f"{counted(fabric.replicas, 'replica')} of {ipus}"
    )


def _subtitle(schedule: Schedule) -> str:
    fabric, group = schedule.fabric, schedule.group
    domains = f"{counted(fabric.domains, 'IPU-Link domain')} of {counted(fabric.ipus_per_domain, 'IPU')}"
    groups = "one group" if group.count == 1 else f"{group.count} groups of {group.size}, stride {group.stride}"
    return f"{fabric.ladder}, {domains}, {groups}"


def _phase_text(schedule: Schedule, phase: ProgramPhase, number: int, cost: Cost | None, width: int) -> str:
    program = phase.program
    head = f"phase {number + 1} of {len(schedule.phases)}: {program.collective}, {program.method}, over {phase.links}"
    lines = [head, f"  because: {phase.why}"]
    if program.orders:
        order = f"  ring {' '.join(map(str, columns(program)))}"
        lines.append(order if len(order) <= width else f"{order[: width - 4]} ...")
    lines.append(
        f"  {counted(len(program.exchanges), 'exchange')}, "
        f"{program.elements_sent(0) * schedule.itemsize:,} bytes sent per replica, "
        f"fragments of {program.width * schedule.itemsize:,} bytes"
    )
    if cost is not None:
        lines.append(f"  modelled {_modelled_time(cost)}")
    if program.exchanges and program.orders:
        lines += _on_tiles(schedule, phase)
    if program.group.count > 1:
        lines.append(f"  group 0 of {program.group.count}; the others do the same at the same time")
    if not program.exchanges:
        return "\n".join(lines)
    table = exchange_table(program, width - 4)
    return "\n".join([*lines, "", *(f"    {line}" for line in table.split("\n"))])


def _on_tiles(schedule: Schedule, phase: ProgramPhase) -> list[str]:
    """Layout of fragments on tiles, how a replica selects one, and the tile memory that this takes."""
    work = TileWork(schedule, phase)
    fullest, memory = work.on_tile(max(phase.program.widths)), work.memory
    layout = "distributed evenly" if phase.reordered_over else "mapped in order"
    return [
        f"  at most {counted(fullest, 'element')} of a fragment on a tile: {layout}, selected by {work.selection}",
        f"  a tile needs {memory.buffers:,} bytes of buffers and {memory.code:,} of code",
    ]


def _modelled_time(cost: Cost) -> str:
    unit = TimeUnit.of(cost.seconds)
    parts = {"transfer": cost.transfer, "hops": cost.hops, "sync": cost.sync, "tiles": cost.compute}
    text = ", ".join(f"{name} {unit.number(seconds)}" for name, seconds in parts.items())
    return f"{unit.text(cost.seconds)} ({text})"


def _priced(schedule: Schedule) -> tuple[Price | None, str]:
    try:
        return price(schedule), ""
    except ArgumentError as error:
        return None, str(error)


def _fabric(replicas: int, ipus_per_replica: int, ilds: int, topology: str | None) -> Fabric:
    if replicas * ipus_per_replica > _MOST_IPUS:
        raise ArgumentError(
            f"{replicas} replicas of {ipus_per_replica} IPUs are too many; a picture can hold {_MOST_IPUS} IPUs, "
            f"so use at most {_MOST_IPUS // ipus_per_replica} replicas"
        )
    default = str(Topology.of_domain(replicas * ipus_per_replica // ilds))
    return Fabric(replicas, ipus_per_replica, ilds, *_LADDERS[topology or default])


def _check_ways(collective: Collective, group: Group) -> None:
    straight = collective in (Collective.ALL_TO_ALL, Collective.BROADCAST)
    if straight and group.replicas * group.size > _MOST_WAYS:
        raise ArgumentError(
            f"{collective} of {group.replicas} replicas in groups of {group.size} is too large: every member sends "
            f"to every other, and a picture can hold {_MOST_WAYS} transfers; use fewer replicas or smaller groups"
        )


def _group(text: str, replicas: int) -> Group:
    name, _, size = text.lower().partition(":")
    makers = {"consecutive": Group.consecutive, "orthogonal": Group.orthogonal}
    if name == "all" and not size:
        return Group.all(replicas)
    if name in makers and size.isascii() and size.isdigit():
        return makers[name](replicas, int(size))
    raise ArgumentError(f"--group {text} is not valid; write all, consecutive:K or orthogonal:K")


main.context_class = FittedContext

if __name__ == "__main__":
    main(prog_name="python -m gcl.explain")
