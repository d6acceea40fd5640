"""Text diagram: step programs and fabrics as docstrings, tests and ``python -m gcl.explain`` show them.

replica       0  2  3  1        one column per replica, in ring order
clockwise to  2  3  1  0        where each stream goes
exchange 1    1  0  2  3        which fragment each replica sends, named by its owner
"""

from __future__ import annotations

from gcl.fabric.fabric import Fabric, LinkConfiguration, Topology
from gcl.scheduling.program.step_program import CrossReplicaCopy, Exchange, StepProgram


def columns(program: StepProgram, group: int = 0) -> list[int]:
    """The replicas of one group in the order in which they are drawn: that of the first ring, if there is one."""
    members = program.group.members(group)
    return [members[index] for index in program.orders[0]] if program.orders else members


def exchange_table(program: StepProgram, width: int | None = None, group: int = 0) -> str:
    """Who sends which fragment when, for the replicas of one group, within ``width`` characters."""
    replicas = columns(program, group)
    rows = [["replica", *map(str, replicas)]]
    if program.orders and program.exchanges:
        first = program.exchanges[0].streams()
        rows += [[f"{name} to", *(str(copies[0].to[r]) for r in replicas)] for name, copies in first.items()]
    for number, exchange in enumerate(program.exchanges, 1):
        rows += _exchange_rows(f"exchange {number}", exchange, replicas, program)
    return _aligned(rows, width)


def sent_fragment(copy: CrossReplicaCopy, replica: int) -> str:
    """The fragment that ``replica`` sends, in brackets if it is not used, ``-`` if it sends nothing."""
    if copy.to[replica] == replica:
        return "-"
    return f"({copy.carries[replica]})" if copy.redundant else str(copy.carries[replica])


def ladder(fabric: Fabric, width: int | None = None) -> str:
    """One IPU-Link domain, lying on its side: row 0 is on the left.

    rail 1   1 - 3 - 5 - 7
             |   |   |   |
    rail 0   0 - 2 - 4 - 6

    The two rings of a barley twist cross at each rung, drawn as X.
    """
    twisted = fabric.configuration is LinkConfiguration.BARLEY_TWIST
    right, left = range(1, fabric.ipus_per_domain, 2), range(0, fabric.ipus_per_domain, 2)
    rows = [
        ["rail 1", *map(str, right)],
        ["", *("X" if twisted else "|" for _ in right)],
        ["rail 0", *map(str, left)],
        ["replica", *(str(fabric.replica_of(ipu)) for ipu in left)],
    ]
    shown = rows if fabric.ipus_per_replica > 1 else rows[:3]
    lines = _aligned(shown, width, gaps=(" - ", "   ", " - ", "   ")).split("\n")
    if fabric.topology is Topology.TORUS and fabric.rows > 1:
        lines.append("loop-back cables join the ends of each rail")
    if twisted:
        lines.append(
            "X: the Serpent ring and the mirrored one use this rung in opposite directions, and change rails"
        )
    return "\n".join(lines)


def _exchange_rows(label: str, exchange: Exchange, replicas: list[int], program: StepProgram) -> list[list[str]]:
    streams = exchange.streams()
    busy = sorted({copy.ipu for copy in exchange.copies})
    if len(busy) < sum(width > 0 for width in program.widths):
        label += f" (IPUs {' '.join(map(str, busy))})"
    if program.orders or len(streams) == 1:
        return [[label, *("/".join(sent_fragment(copies[0], r) for copies in streams.values()) for r in replicas)]]
    return [
        [f"{label} to {name}", *(sent_fragment(copies[0], r) for r in replicas)] for name, copies in streams.items()
    ]


def _aligned(rows: list[list[str]], width: int | None, gaps: tuple[str, ...] = ()) -> str:
    """Rows of label and cells in columns; cells in the middle give way to ``...`` where ``width`` is too small.

    ``gaps``: what stands between the cells of each row, in place of two blanks.
    """
    label = max(len(row[0]) for row in rows)
    cell = max((len(text) for row in rows for text in row[1:]), default=0)
    between = gaps or ("  ",) * len(rows)
    fits = len(rows[0]) if width is None else max(4, (width - label) // (cell + len(between[0])))
    lines = []
    for row, gap in zip(rows, between, strict=False):
        cells = [f"{text:>{cell}}" for text in row[1:]]
        if len(cells) > fits:
            cells = [*cells[: fits - 2], f"{'...':>{cell}}", cells[-1]]
        lines.append(f"{row[0]:<{label}}  {gap.join(cells)}".rstrip())
    return "\n".join(lines)
