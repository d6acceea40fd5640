"""System text: a system as a drawing and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import psutil
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gcl.drawing.units import counted, memory
from ipu_emu.hardware import ALONE, PATTERNS, Claim, System
from ipu_emu.hardware.position import IPUS_PER_MACHINE
from ipu_emu.hardware.rates import link_rates


def drawing(system: System, claims: Sequence[Claim], width: int) -> RenderableType:
    """Return the ladder of machines, highest at the top, domains side by side; then figures; then users of IPUs."""
    holders = _holders(system, claims)
    ladders, users = _domains(system, holders, width), Text(_users(system, claims))
    return Group(_title(system), Text(), ladders, Text(), _numbers(system), Text(), users)


def _title(system: System) -> Text:
    units = counted(system.ipus // _unit(system)[1], _unit(system)[0])
    parts = [f"{system.ipus} {system.generation.name} IPUs", units]
    parts += [counted(system.domains, "IPU-Link domain"), f"up to {counted(system.most_hosts, 'host')}"]
    return Text.assemble((system.name, "bold"), f"   {', '.join(parts)}")


def _unit(system: System) -> tuple[str, int]:
    """What the IPUs of a system are on, and how many of them: C2 cards have two, IPU-Machines four."""
    return ("C2 card", 2) if system.generation.pods is None else ("machine", IPUS_PER_MACHINE)


def _domains(system: System, holders: Mapping[int, int], width: int) -> Table:
    """Return as many domains as fit side by side; the others are equal."""
    cell = max(3, len(str(system.ipus - 1)))
    across = max(1, min(system.domains, (width - 14) // (2 * cell + 8)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    name, ipus = _unit(system)
    table.add_column(name, justify="right", style="dim")
    for domain in range(across):
        more = f" (of {system.domains})" if across < system.domains and domain == across - 1 else ""
        table.add_column(f"domain {domain}{more}")
    rows = max(1, system.domain_size // 2)
    for row in reversed(range(rows)):
        lines = [_rung(domain * system.domain_size + 2 * row, cell, holders) for domain in range(across)]
        table.add_row(str(2 * row // ipus) if 2 * row % ipus == 0 else "", *lines)
    return table


def _rung(left: int, cell: int, holders: Mapping[int, int]) -> Text:
    """Return the two IPUs of a row; those in use are marked."""
    sides = [Text(f"{ipu:>{cell}}", style="red reverse" if ipu in holders else "green") for ipu in (left, left + 1)]
    marks = ["*" if ipu in holders else " " for ipu in (left, left + 1)]
    return Text.assemble(sides[0], marks[0], ("══", "dim"), sides[1], marks[1])


def _numbers(system: System) -> Table:
    kind = system.generation
    table = Table(box=None, pad_edge=False, show_header=False)
    rows = [
        ("tiles", f"{kind.tiles:,} per IPU, {kind.workers} worker threads each, {kind.clock / 1e9:g} GHz"),
        ("memory", f"{memory(kind.sram)} per IPU ({memory(kind.tile_memory)} per tile)"),
        ("Streaming Memory", f"{memory(kind.streaming_memory)} per IPU" if kind.streaming_memory else "none"),
        ("matrix products", f"{kind.peak(2) / 1e12:.1f} TFLOP/s in FLOAT16, {kind.peak(4) / 1e12:.1f} in FLOAT"),
        ("exchange", f"{kind.exchange / 1e12:.2f} TB/s between the tiles of an IPU"),
        ("IPU-Links", f"{kind.links} per IPU: 6 along its rung, 2 up and 2 down its rail"),
        *((rate.name, str(rate)) for rate in link_rates(kind)),
    ]
    for name, value in rows:
        table.add_row(Text(name, style="dim"), f"{value}")
    return table


def _users(system: System, claims: Sequence[Claim]) -> str:
    """Return a line per process, grouped by job."""
    lines = [f"* {_ranges(claim)}: {_program(claim.pid)}" for claim in claims if _is_in(system, claim)]
    others = [claim for claim in claims if not _is_in(system, claim)]
    for (name, job), group in groupby(others, key=lambda claim: (claim.system, claim.job)):
        lines += [""] if lines else []
        lines.append(f"poprun-py job on its own {name}" if job else name)
        lines += [f"  {_ranges(claim)}: {_program(claim.pid)}" for claim in group]
    return "\n".join(lines) or "no IPU is in use"


def _is_in(system: System, claim: Claim) -> bool:
    """Whether the claim is of a program without a job, on this system."""
    return claim.job == ALONE and claim.system == system.name.replace(" ", "")


def _holders(system: System, claims: Sequence[Claim]) -> dict[int, int]:
    """Return the process that uses it for each IPU in use."""
    return {ipu: claim.pid for claim in claims if _is_in(system, claim) for ipu in claim.ipus}


def facts(system: System, claims: Sequence[Claim]) -> dict[str, Any]:
    """Return all that is drawn, as data."""
    kind = system.generation
    return {
        "name": system.name,
        "ipus": system.ipus,
        "machines": system.machines,
        "ipu_link_domains": system.domains,
        "ipus_per_domain": system.domain_size,
        "most_hosts": system.most_hosts,
        "generation": {
            "name": kind.name,
            "version": kind.version,
            "tiles_per_ipu": kind.tiles,
            "workers_per_tile": kind.workers,
            "clock_hz": kind.clock,
            "sram_bytes_per_ipu": kind.sram,
            "streaming_memory_bytes_per_ipu": kind.streaming_memory,
            "float16_flops": kind.peak(2),
            "float_flops": kind.peak(4),
            "exchange_bytes_per_second": kind.exchange,
            "bytes_per_second_per_direction": {rate.name: rate.modelled for rate in link_rates(kind)},
        },
        "sync_patterns": [vars(pattern) for pattern in PATTERNS.values()],
        "placement": [_placement(system, ipu) for ipu in range(system.ipus)],
        "used": [
            {
                "system": claim.system,
                "job": claim.job or None,
                "ipus": list(claim.ipus),
                "pid": claim.pid,
                "program": _program(claim.pid),
            }
            for claim in claims
        ],
    }


def _placement(system: System, ipu: int) -> dict[str, Any]:
    at = system.position(ipu)
    names = ("ipu", "domain", "machine", "place", "row", "rail", "rung_partner", "rail_neighbours")
    ports = at.ports if system.ipus >= IPUS_PER_MACHINE else {}
    return {name: getattr(at, name) for name in names} | {"ports": ports}


def _program(pid: int) -> str:
    """Return the pid and command line of a process."""
    try:
        command = " ".join(psutil.Process(pid).cmdline()) if pid else ""
    except psutil.Error:
        command = ""
    shown = command if len(command) <= 80 else command[:77] + "..."
    return f"pid {pid} ({shown})" if shown else f"pid {pid}" if pid else "a process in another container"


def _ranges(claim: Claim) -> str:
    """``IPU 3``, ``IPUs 0-3``."""
    first, last = claim.ipus[0], claim.ipus[-1]
    return f"IPU {first}" if first == last else f"IPUs {first}-{last}"
