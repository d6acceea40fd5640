"""Printed: a plan in words: what --dry-run prints as text or JSON, and the topology that --print-topology shows."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from poprun_py.options.option_table import LaunchOptions
from poprun_py.plan.launch_plan import Instance, LaunchPlan
from poprun_py.plan.topology_table import topology_table
from poprun_py.vipu.partition import Decision

__all__ = ["as_json", "as_text", "printed", "topology"]


def printed(job: LaunchPlan, options: LaunchOptions, decision: Decision | None = None) -> str:
    """What --dry-run prints, in the --format that is asked for."""
    if options.format == "json":
        return as_json(job, options, decision)
    table = topology(job, options) if options.print_topology or options.verbosity > 1 else ""
    return table + as_text(job, options, decision)


def topology(job: LaunchPlan, options: LaunchOptions) -> str:
    """The table; with -v also a line per instance that says where it runs."""
    local = options.num_replicas // options.num_instances
    hosts = [(host, local * len(list(instances))) for host, instances in groupby(job.instances, lambda one: one.host)]
    table = topology_table(
        hosts=hosts,
        ilds=[(str(ild), options.num_replicas // options.ilds) for ild in range(options.ilds)],
        instances=[(str(instance.index), local) for instance in job.instances],
    )
    lines = [f"instance {one.index} on {one.host}: {_place(one)}\n" for one in job.instances]
    return table + "".join(lines if options.verbosity else [])


def as_text(job: LaunchPlan, options: LaunchOptions, decision: Decision | None = None) -> str:
    """The plan for people; what instances inherit from this environment unchanged is not repeated."""
    command = " ".join([*_assignments(job.command.environment), shlex.join(job.command.argv)])
    lines = [
        f"program    {shlex.join(job.program)}",
        f"runs       {job.executable}",
        f"in         {job.cwd}",
        f"shape      {_shape(options)}",
        f"hosts      {', '.join(job.hosts)}",
        *([f"partition  {decision}"] if decision else []),
        f"MPI        {job.installation.kind}, library {job.installation.library or 'unknown'}",
        f"command    {command}",
        *(f"note       {note}" for note in job.notes),
    ]
    for instance in job.instances:
        lines.append(
            f"instance {instance.index} on {instance.host}, {instance.replica_text}, offset {instance.replicas[0]}"
        )
        lines.append(f"    {_place(instance)}")
        lines += [f"    {text}" for text in _assignments(_own(instance))]
        lines += [f"    unset {name}" for name in job.unset]
    return "\n".join(lines) + "\n"


def as_json(job: LaunchPlan, options: LaunchOptions, decision: Decision | None = None) -> str:
    """The plan for programs."""
    partition = decision and decision.partition
    content = {
        "program": list(job.program),
        "executable": job.executable,
        "cwd": job.cwd,
        "num_instances": options.num_instances,
        "num_replicas": options.num_replicas,
        "ipus_per_replica": options.ipus_per_replica,
        "num_ilds": options.ilds,
        "hosts": list(job.hosts),
        "partition": partition
        and decision
        and {
            "name": partition.name,
            "server": partition.server,
            "ipus": partition.ipus,
            "allocation": partition.allocation,
            "action": decision.action,
        },
        "mpi": {
            "kind": job.installation.kind,
            "launcher": job.installation.launcher,
            "library": job.installation.library,
        },
        "command": {"argv": list(job.command.argv), "environment": dict(job.command.environment)},
        "unset": list(job.unset),
        "notes": list(job.notes),
        "instances": [_instance(one) for one in job.instances],
    }
    return json.dumps(content, indent=2) + "\n"


def _instance(one: Instance) -> dict[str, Any]:
    own = _own(one)
    return {
        "index": one.index,
        "host": one.host,
        "local_index": one.local_index,
        "replicas": list(one.replicas),
        "offset": one.replicas[0],
        "cpus": list(one.placement.cpus) if one.placement else None,
        "memory_nodes": list(one.placement.memory) if one.placement else None,
        "bound": one.placement.bound if one.placement else None,
        "environment": own,
        "inherited": sorted(set(one.environment) - set(own)),
    }


def _own(instance: Instance) -> dict[str, str]:
    """Variables that are not just this environment's, carried to another host."""
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
    return str(instance.placement) if instance.placement else "CPUs and memory nodes as that host has them"


def _assignments(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        yield f"{name}={shlex.quote(value)}"
