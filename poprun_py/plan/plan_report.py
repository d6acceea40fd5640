"""Plan report: the plan as --dry-run prints it (text or JSON), and the topology of --print-topology."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from poprun_py.options.option_table import LaunchOptions
from poprun_py.output.log import printable
from poprun_py.plan.launch_plan import Instance, LaunchPlan
from poprun_py.vipu.partition import PartitionAssignment

_TITLE = "poprun topology"
_LABEL_WIDTH = 11
#: A label and the number of replicas it spans.
Cell = tuple[str, int]


def report(plan: LaunchPlan, options: LaunchOptions, assignment: PartitionAssignment | None = None) -> str:
    """Return what --dry-run prints, in the format that --format names."""
    if options.format == "json":
        return as_json(plan, options, assignment)
    table = topology_report(plan, options) if options.print_topology or options.verbosity > 1 else ""
    return table + as_text(plan, options, assignment)


def topology_report(plan: LaunchPlan, options: LaunchOptions) -> str:
    """Return the table; with -v also a line per instance with its CPUs and memory nodes."""
    local = options.num_replicas // options.num_instances
    hosts = [
        (printable(host), local * len(list(instances)))
        for host, instances in groupby(plan.instances, lambda instance: instance.host)
    ]
    table = topology_table(
        hosts=hosts,
        ilds=[(str(ild), options.num_replicas // options.ilds) for ild in range(options.ilds)],
        instances=[(str(instance.index), local) for instance in plan.instances],
    )
    lines = [
        f"instance {instance.index} on {printable(instance.host)}: {_place(instance)}\n"
        for instance in plan.instances
    ]
    return table + "".join(lines if options.verbosity else [])


def as_text(plan: LaunchPlan, options: LaunchOptions, assignment: PartitionAssignment | None = None) -> str:
    """Return the plan as text; variables that instances inherit unchanged from this environment are not listed."""
    command = " ".join([*_assignments(plan.command.environment), shlex.join(plan.command.argv)])
    lines = [
        f"program    {shlex.join(plan.program)}",
        f"file       {plan.executable}",
        f"folder     {plan.cwd}",
        f"shape      {_shape(options)}",
        f"hosts      {', '.join(plan.hosts)}",
        *([f"partition  {assignment}"] if assignment else []),
        f"MPI        {plan.installation.kind}, library {plan.installation.library or 'unknown'}",
        f"command    {command}",
        *(f"note       {note}" for note in plan.notes),
    ]
    for instance in plan.instances:
        lines.append(
            f"instance {instance.index} on {instance.host}, {instance.replica_text}, offset {instance.replicas[0]}"
        )
        lines.append(f"    {_place(instance)}")
        lines += [f"    {text}" for text in _assignments(_own(instance))]
        lines += [f"    unset {name}" for name in plan.unset]
    return "".join(f"{printable(line)}\n" for line in lines)


def as_json(plan: LaunchPlan, options: LaunchOptions, assignment: PartitionAssignment | None = None) -> str:
    """Return the plan as JSON."""
    partition = assignment and assignment.partition
    content = {
        "program": list(plan.program),
        "executable": plan.executable,
        "cwd": plan.cwd,
        "num_instances": options.num_instances,
        "num_replicas": options.num_replicas,
        "ipus_per_replica": options.ipus_per_replica,
        "num_ilds": options.ilds,
        "hosts": list(plan.hosts),
        "partition": partition
        and assignment
        and {
            "name": partition.name,
            "server": partition.server,
            "ipus": partition.ipus,
            "allocation": partition.allocation,
            "action": assignment.action,
        },
        "mpi": {
            "kind": plan.installation.kind,
            "launcher": plan.installation.launcher,
            "library": plan.installation.library,
        },
        "command": {"argv": list(plan.command.argv), "environment": dict(plan.command.environment)},
        "unset": list(plan.unset),
        "notes": list(plan.notes),
        "instances": [_instance(instance) for instance in plan.instances],
    }
    return json.dumps(content, indent=2) + "\n"


def _instance(instance: Instance) -> dict[str, Any]:
    own = _own(instance)
    return {
        "index": instance.index,
        "host": instance.host,
        "local_index": instance.local_index,
        "replicas": list(instance.replicas),
        "offset": instance.replicas[0],
        "cpus": list(instance.placement.cpus) if instance.placement else None,
        "memory_nodes": list(instance.placement.memory) if instance.placement else None,
        "bound": instance.placement.bound if instance.placement else None,
        "environment": own,
        "inherited": sorted(set(instance.environment) - set(own)),
    }


def _own(instance: Instance) -> dict[str, str]:
    """The variables of an instance that differ from this process's environment."""
    return {name: value for name, value in instance.environment.items() if os.environ.get(name) != value}


def _shape(options: LaunchOptions) -> str:
    parts = (
        (options.num_instances, "instance"),
        (options.num_replicas, "replica"),
        (options.ipus_per_replica, "IPU"),
        (options.ilds, "IPU-Link domain"),
    )
    instances, replicas, ipus, ilds = (f"{count} {what}{'' if count == 1 else 's'}" for count, what in parts)
    return f"{instances}, {replicas} of {ipus}, {ilds}"


def _place(instance: Instance) -> str:
    return str(instance.placement) if instance.placement else "CPUs and memory nodes are determined on that host"


def _assignments(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        yield f"{name}={shlex.quote(value)}"


def topology_table(*, hosts: Sequence[Cell], ilds: Sequence[Cell], instances: Sequence[Cell]) -> str:
    """Draw the table; the cells of each row span all replicas. Lines end in newlines.

     ===========================
    |      poprun topology      |
    |===========================|
    | hosts     |   localhost   |
    |-----------|---------------|
    | ILDs      |       0       |
    |-----------|---------------|
    | instances |   0   |   1   |
    |-----------|---------------|
    | replicas  | 0 | 1 | 2 | 3 |
     ---------------------------
    """
    replicas = sum(span for _, span in instances)
    width = _replica_width(replicas, [*hosts, *ilds, *instances])
    rows = [
        _row(label, "|".join(_centred(text, span * (width + 1) - 1) for text, span in cells))
        for label, cells in (("hosts", hosts), ("ILDs", ilds), ("instances", instances))
    ]
    rows.append(_row("replicas", "|".join(f" {replica}".ljust(width) for replica in range(replicas))))
    inner = len(rows[0]) - 2
    rule = f"\n|{'-' * _LABEL_WIDTH}|{'-' * (inner - _LABEL_WIDTH - 1)}|\n"
    title = f" {'=' * inner}\n|{_centred(_TITLE, inner)}|\n|{'=' * inner}|\n"
    return title + rule.join(rows) + f"\n {'-' * inner}\n"


def _replica_width(replicas: int, cells: Sequence[Cell]) -> int:
    """The width that fits the largest index, and each label above in its ``span`` cells and the bars between them."""
    index = len(str(replicas - 1)) + 2
    return max([index, *(-(-(len(text) + 3) // span) - 1 for text, span in cells)])


def _row(label: str, cells: str) -> str:
    return f"| {label.ljust(_LABEL_WIDTH - 1)}|{cells}|"


def _centred(text: str, width: int) -> str:
    """Centre the text, with the odd blank on the right (str.center differs for some widths)."""
    left = (width - len(text)) // 2
    return " " * left + text + " " * (width - len(text) - left)
