"""Run report as text: summary, findings, time by category and instance, collectives, the ops that take longest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from gcl.drawing.units import TimeUnit, memory
from ipu_emu.trace.report_data import categories_of

#: Rows of the tables of ops and collectives.
_ROWS = 12


def report_text(data: Mapping[str, Any]) -> RenderableType:
    """The report of one run."""
    tables = (
        *_times(data),
        *_collectives(data["collectives"]),
        *_ops(data["ops"]),
        *_programs(data["programs"]),
        *_checkpointing(data["checkpointing"]),
    )
    return Group(*_head(data), *tables)


def comparison_text(data: Mapping[str, Any]) -> RenderableType:
    """The comparison of two runs."""
    first, second = data["step_seconds"]
    unit = TimeUnit.of(max(first, second))
    table = Table("category", "before", "after", "after / before", title=f"time of a step [{unit.name}]")
    for name, (old, new) in data["step_seconds_by_category"].items():
        table.add_row(name, unit.number(old), unit.number(new), f"{new / old:.2f}" if old else "")
    return Group(*(f"Note: {note}" for note in data["notes"]), *data["sentences"], "", table)


def _head(data: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield f"{data['folder']}: {TimeUnit.of(data['wall_seconds']).text(data['wall_seconds'])} of wall time, measured"
    if data["weights"]:
        yield f"weights {data['weights']}"
    for note in data["notes"]:
        yield f"Note: {note}"
    yield f"While steps run: {data['summary']}"
    for finding in data["findings"]:
        yield f"- {finding['text']}: {finding['advice']}"
    dropped = sum(process["dropped_records"] for process in data["processes"])
    if dropped:
        yield f"- {dropped:,} records are missing: raise IPU_EMU_TRACE_LIMIT (MiB), or free space on the disk"
    yield ""


def _times(data: Mapping[str, Any]) -> Iterator[RenderableType]:
    keys = (("seconds_by_category", "from start to end"), ("stepping_seconds_by_category", "while steps run"))
    for key, title in keys:
        instances: Sequence[Mapping[str, Any]] = data["instances"]
        names = categories_of(instances, key)
        if not names:
            continue
        unit = TimeUnit.of(max(sum(row[key].values()) for row in instances))
        table = Table("category", *(row["label"] for row in instances), title=f"wall time {title} [{unit.name}]")
        for name in names:
            table.add_row(name, *(unit.number(row[key].get(name, 0.0)) for row in instances))
        table.add_row("total", *(unit.number(sum(row[key].values())) for row in instances))
        yield table


def _collectives(rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    if not rows:
        return
    table = Table("collective", "size", "calls", "moving", "waiting", "bandwidth", "last most", title="collectives")
    for row in rows[:_ROWS]:
        last = max(range(len(row["instances"])), key=lambda place: row["times_last_by_instance"][place])
        waiting = sum(row["waiting_seconds_by_instance"]) / len(row["instances"]) / row["calls"]
        rate = row["bandwidth_gigabytes_per_second"]
        table.add_row(
            row["name"],
            memory(row["bytes"]),
            f"{row['calls']:,}",
            TimeUnit.of(row["median_moving_seconds"]).text(row["median_moving_seconds"]),
            TimeUnit.of(waiting).text(waiting),
            "" if rate is None else f"{rate:.2f} GB/s",
            f"instance {row['instances'][last]} ({row['times_last_by_instance'][last] / row['calls']:.0%})",
        )
    table.caption = "\n".join(_limits(rows))
    yield table


def _limits(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """For each limit of bandwidth, the largest fraction of it that a collective reaches."""
    shares: dict[tuple[str, str, float | None], float] = {}
    for row in rows:
        key = row["limit"], row["limit_interface"], row["limit_gigabytes_per_second"]
        shares[key] = max(shares.get(key, 0.0), row["share_of_limit"] or 0.0)
    for (limit, interface, rate), share in shares.items():
        if rate is None:
            yield "bandwidth: its limit is unknown for some collectives"
        else:
            yield f"bandwidth: up to {share:.0%} of the {limit}{interface and ' ' + interface}, {rate:.2f} GB/s"


def _ops(rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """The ops; with a profile of the program, the modelled time of a call next to the measured one."""
    if not rows:
        return
    total = sum(row["seconds"] for row in rows)
    unit = TimeUnit.of(max(row["seconds"] for row in rows))
    shown = rows[:_ROWS]
    modelled = any(row["modelled_seconds"] is not None for row in shown)
    more = ["a call [us]", "modelled [us]"] if modelled else ["category"]
    head = ["op", "output", "calls", f"time [{unit.name}]", "share", *more]
    table = Table(*head, title="ops, all replicas")
    for row in shown:
        times = [f"{row['seconds'] / row['calls'] * 1e6:,.1f}", _microseconds(row["modelled_seconds"])]
        table.add_row(
            row["name"],
            row["output"],
            f"{row['calls']:,}",
            unit.number(row["seconds"]),
            f"{row['seconds'] / total:.1%}" if total else "",
            *(times if modelled else (row["category"],)),
        )
    notes = [f"{len(rows) - _ROWS} more with --format json"] if len(rows) > _ROWS else []
    if any(row["timed_together"] for row in shown):
        notes.append("short ones that follow each other are timed together, and share that time as they did at first")
    table.caption = "\n".join(notes)
    yield table


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.2f}"


def _programs(programs: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """The modelled memory of each program's IPUs by use."""
    for program in programs:
        memories = program["memory"]
        title = f"memory of {program['name'] or 'the program'}: bytes by use on each IPU of a replica, modelled"
        table = Table("use", *(f"IPU {ipu['ipu']}" for ipu in memories), title=title)
        uses = dict.fromkeys(use for ipu in memories for use, size in ipu["bytes_by_use"].items() if size)
        for use in uses:
            table.add_row(use, *(memory(ipu["bytes_by_use"][use]) for ipu in memories))
        table.add_row("total", *(memory(ipu["bytes"]) for ipu in memories))
        yield table


def _checkpointing(data: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The copies from the IPUs to the host, by tensor, and the files written."""
    copies, sections = data["copies"], data["sections"]
    if copies:
        head = ["tensor", "IPU", "size", "copies", "a copy [us]", "modelled [us]"]
        table = Table(*head, title=f"weights to the host: {memory(data['bytes_copied'])}, all instances")
        for row in copies[:_ROWS]:
            numbers = f"{row['seconds'] / row['calls'] * 1e6:,.1f}", _microseconds(row["modelled_seconds"])
            table.add_row(row["tensor"], str(row["ipu"]), memory(row["bytes"]), f"{row['calls']:,}", *numbers)
        yield _with_rest(table, copies)
    if sections:
        title = f"sections of checkpoints: {memory(data['bytes_written'])} written, all instances"
        table = Table("section", "size", "writes", "a write [us]", title=title)
        for row in sections[:_ROWS]:
            mean = f"{row['seconds'] / row['calls'] * 1e6:,.1f}"
            table.add_row(row["section"], memory(row["bytes"]), f"{row['calls']:,}", mean)
        yield _with_rest(table, sections)


def _with_rest(table: Table, rows: Sequence[object]) -> Table:
    if len(rows) > _ROWS:
        table.caption = f"{len(rows) - _ROWS} more with --format json"
    return table
