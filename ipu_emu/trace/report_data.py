"""Report data: all numbers of a report as plain data, with units in the keys; the source of its other forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ipu_emu.trace.bandwidth import Bandwidth, Limit, bandwidths
from ipu_emu.trace.collective_calls import CollectiveCalls
from ipu_emu.trace.findings import RunAnalysis
from ipu_emu.trace.process_trace import Name
from ipu_emu.trace.program_profiles import modelled_ops, read_profiles
from ipu_emu.trace.run import Process, Run
from ipu_emu.trace.self_time import self_times
from ipu_emu.trace.separate_programs import notes_on
from ipu_emu.trace.stragglers import punctuality
from ipu_emu.trace.time_use import TimeUse
from ipu_emu.trace.timelines.flows import flows
from popdist_py.trace import WEIGHTS

#: The columns of the table of ops that come from the profile of the program, for one call.
_MODELLED = ("modelled_seconds", "modelled_cycles", "flops", "bytes")
_Table = dict[tuple[Any, ...], dict[str, Any]]


def report_data(analysis: RunAnalysis) -> dict[str, Any]:
    """The report of a run: summary, findings, instances, collectives, stragglers, stages, ops, programs, ..."""
    run, profiles = analysis.run, read_profiles(analysis.run.folder, analysis.run.profiles)
    rates = bandwidths(run, analysis.collectives)
    return {
        "folder": run.folder,
        "wall_seconds": run.seconds,
        "weights": next(
            (process.trace.facts[WEIGHTS] for process in run.instances if WEIGHTS in process.trace.facts), None
        ),
        "summary": analysis.summary,
        "findings": [{**vars(finding), "cause": finding.cause.value} for finding in analysis.findings],
        "notes": [*notes_on(run), *profiles.damaged],
        "instances": [_instance(use) for use in analysis.uses],
        "collectives": [_collectives(*pair) for pair in zip(analysis.collectives, rates, strict=True)],
        "stragglers": [asdict(row) for row in punctuality(analysis.uses, analysis.collectives)],
        "transfers": len(sent := flows(run)),
        "transfers_received_before_sent": sum(not flow.is_possible for flow in sent),
        "stages": _stages(analysis),
        "ops": op_table(run.instances, modelled_ops(profiles.programs)),
        "programs": list(profiles.programs),
        "checkpointing": checkpointing(run, profiles.copies),
        "processes": [_process(process) for process in run.processes],
    }


def categories_of(instances: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """The categories in which instances of a report spend time by ``key``, those with the most time first."""
    totals: dict[str, float] = defaultdict(float)
    for row in instances:
        for name, seconds in row[key].items():
            totals[name] += seconds
    return sorted(filter(totals.__getitem__, totals), key=lambda name: -totals[name])


def _instance(use: TimeUse) -> dict[str, Any]:
    process = use.process
    return {
        "instance": process.instance,
        "label": process.label,
        "host": process.host,
        "steps": use.steps,
        "start_seconds": use.start,
        "end_seconds": use.end,
        "seconds_by_category": dict(use.categories),
        "stepping_seconds": use.stepping_seconds,
        "stepping_seconds_by_category": dict(use.stepping),
        "open_spans": [name for name, _ in process.open],
    }


def _collectives(calls: CollectiveCalls, bandwidth: Bandwidth) -> dict[str, Any]:
    return {
        "name": calls.name,
        "bytes": calls.nbytes,
        "operator": calls.about.get("operator"),
        "group": calls.about.get("group"),
        "transport": calls.about.get("transport"),
        "method": calls.about.get("method"),
        "instances": list(calls.instances),
        "calls": len(calls.begins),
        "waiting_seconds_by_instance": [float(nanoseconds) / 1e9 for nanoseconds in calls.waits.sum(0)],
        "moving_seconds_by_instance": [float(nanoseconds) / 1e9 for nanoseconds in calls.moves.sum(0)],
        "times_last_by_instance": np.bincount(calls.last, minlength=len(calls.instances)).tolist(),
        "median_moving_seconds": bandwidth.seconds,
        "bandwidth_gigabytes_per_second": bandwidth.rate,
        "memory_gigabytes_per_second": bandwidth.most if bandwidth.limit is Limit.MEMORY else None,
        "limit": bandwidth.limit.value,
        "limit_interface": bandwidth.interface,
        "limit_gigabytes_per_second": bandwidth.most,
        "limited_gigabytes_per_second": bandwidth.bounded_rate,
        "share_of_limit": bandwidth.share,
    }


def _stages(analysis: RunAnalysis) -> dict[str, Any] | None:
    if analysis.stages is None:
        return None
    return {
        "seconds_by_stage": {str(stage): seconds for stage, seconds in analysis.stages.stages.items()},
        "seconds_by_ipu": {str(ipu): seconds for ipu, seconds in analysis.stages.ipus.items()},
        "imbalance": analysis.stages.imbalance,
        "busy_by_ipu": {str(ipu): share for ipu, share in analysis.stages.busy.items()},
        "efficiency": analysis.stages.efficiency,
    }


def _process(process: Process) -> dict[str, Any]:
    trace = process.trace
    return {
        "label": process.label,
        "host": process.host,
        "pid": trace.process.get("pid"),
        "arguments": trace.process.get("arguments"),
        "environment": trace.process.get("environment"),
        "records": len(process.records),
        "dropped_records": trace.dropped,
        "clock_offset_seconds": process.offset / 1e9,
        "clock_error_seconds": process.error / 1e9,
    }


def op_table(
    processes: Sequence[Process], modelled: Mapping[tuple[str, str], Mapping[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Measured time by instruction and output, over all replicas and instances, longest first.

    ``modelled`` has the data of each from the program's profile; unknown values are None.
    """
    known, together = modelled or {}, _timed_together(processes)
    totals: dict[tuple[str, str, str], list[Any]] = {}
    for process in processes:
        for thread in process.trace.threads:
            _add(totals, process, process.spans[process.spans["thread"] == thread])
    rows = [
        {
            "name": name,
            "output": output,
            "category": category,
            "calls": calls,
            "seconds": seconds,
            "timed_together": (name, output) in together,
            **{key: known.get((name, output), {}).get(key) for key in _MODELLED},
        }
        for (name, output, category), (calls, seconds) in totals.items()
    ]
    return sorted(rows, key=lambda row: -row["seconds"])


def _timed_together(processes: Sequence[Process]) -> set[tuple[str, str]]:
    """Name and output of the instructions that share a time stamp with others."""
    keys = set()
    for names in (process.trace.names for process in processes):
        for name in names.values():
            spans, groups = name.args.get("spans"), name.args.get("groups")
            if not isinstance(spans, list) or not isinstance(groups, list):
                continue
            shared = [len(group) > 1 for group in groups if isinstance(group, list) for _ in group]
            numbers = [number for number, together in zip(spans, shared, strict=False) if together]
            of = [names[number] for number in numbers if type(number) is int and number in names]
            keys |= {(member.name, str(member.args.get("output", ""))) for member in of}
    return keys


def _add(totals: dict[tuple[str, str, str], list[Any]], process: Process, spans: np.ndarray) -> None:
    own = self_times(spans)
    numbers, places = np.unique(spans["name"], return_inverse=True)
    sums, counts = np.bincount(places, own, len(numbers)), np.bincount(places, minlength=len(numbers))
    for number, total, count in zip(numbers, sums, counts, strict=True):
        name = process.trace.names[int(number)]
        args: Mapping[str, Any] = name.args
        if "instruction" in args:
            key = name.name, str(args.get("output", "")), name.category
            calls, seconds = totals.get(key, (0, 0.0))
            totals[key] = [calls + int(count), seconds + float(total) / 1e9]


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
                _add_call(copies, (process.label, about["phase"], *key), row, calls, seconds)
            elif name.name == "write a section" and {"section", "bytes"} <= about.keys():
                row = {**about, "instance": process.instance}
                _add_call(sections, (process.label, about["section"], about["bytes"]), row, calls, seconds)
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


def _add_call(table: _Table, key: tuple[Any, ...], row: Mapping[str, Any], calls: int, seconds: float) -> None:
    old = table.setdefault(key, {**row, "calls": 0, "seconds": 0.0})
    old["calls"] += calls
    old["seconds"] += seconds
