"""Checkpointing: copies from the IPUs to the host, by tensor, and writes to files, by section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ipu_emu.trace.process_trace import Name
from ipu_emu.trace.run import Process, Run

_Table = dict[tuple[Any, ...], dict[str, Any]]


def checkpointing(run: Run, profiles: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The copies and the sections of files of all instances, those that took the most time first.

    ``profiles`` are of the programs that copy; a copy without a profile has the modelled time None.
    """
    modelled = {
        (copy["tensor"], copy["replica"], copy["bytes"]): copy["modelled_seconds"]
        for profile in profiles
        for copy in profile["copies"]
    }
    copies: _Table = {}
    sections: _Table = {}
    for process in run.instances:
        for name, calls, seconds in _totals(process):
            about = dict(name.args)
            if name.name == "copy to the host" and {"phase", "tensor", "replica", "bytes"} <= about.keys():
                key = about["tensor"], about["replica"], about["bytes"]
                row = {**about, "instance": process.instance, "modelled_seconds": modelled.get(key)}
                _add(copies, (process.label, about["phase"], *key), row, calls, seconds)
            elif name.name == "write a section" and {"section", "bytes"} <= about.keys():
                row = {**about, "instance": process.instance}
                _add(sections, (process.label, about["section"], about["bytes"]), row, calls, seconds)
    return {
        "copies": sorted(copies.values(), key=lambda row: -row["seconds"]),
        "sections": sorted(sections.values(), key=lambda row: -row["seconds"]),
        "bytes_copied": sum(row["calls"] * row["bytes"] for row in copies.values()),
        "copying_seconds": sum(row["seconds"] for row in copies.values()),
        "bytes_written": sum(row["calls"] * row["bytes"] for row in sections.values()),
        "writing_seconds": sum(row["seconds"] for row in sections.values()),
        "programs": list(profiles),
    }


def _totals(process: Process) -> Iterator[tuple[Name, int, float]]:
    """Each name of the spans of a process with calls and seconds, if its arguments are of a copy or a section."""
    spans = process.spans
    for number, name in process.trace.names.items():
        if type(name.args.get("bytes")) is int and ("tensor" in name.args or "section" in name.args):
            these = spans[spans["name"] == number]
            if len(these):
                yield name, len(these), float((these["end"] - these["begin"]).sum()) / 1e9


def _add(table: _Table, key: tuple[Any, ...], row: Mapping[str, Any], calls: int, seconds: float) -> None:
    old = table.setdefault(key, {**row, "calls": 0, "seconds": 0.0})
    old["calls"] += calls
    old["seconds"] += seconds
