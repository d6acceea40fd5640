"""Pod environment: the variables that describe the emulated Pod to the instances: V-IPU partition, target options."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from poprun_py.options.option_table import ILD_SIZE, PARTITION_VARIABLE, LaunchOptions
from poprun_py.plan.launch_plan import LaunchPlan

if TYPE_CHECKING:
    from poprun_py.vipu.partition import PartitionAssignment, PartitionRequest

TARGET_OPTIONS = "POPLAR_TARGET_OPTIONS"


def with_pod_environment(
    plan: LaunchPlan,
    options: LaunchOptions,
    *,
    environ: Mapping[str, str],
    request: PartitionRequest | None,
    assignment: PartitionAssignment | None,
) -> LaunchPlan:
    """Return the plan with the Pod's variables for every instance; variables that the user sets take precedence."""
    instances = []
    for instance in plan.instances:
        pod = pod_environment(options, instance.index, environ=environ, request=request, assignment=assignment)
        chosen = {name: value for name, value in instance.environment.items() if environ.get(name) != value}
        environment = {**instance.environment, **pod, **chosen}
        instances.append(dataclasses.replace(instance, environment=environment))
    return dataclasses.replace(plan, instances=tuple(instances))


def pod_environment(
    options: LaunchOptions,
    instance: int,
    *,
    environ: Mapping[str, str],
    request: PartitionRequest | None,
    assignment: PartitionAssignment | None,
) -> dict[str, str]:
    """Return the variables in PopRun's order; each instance has a graph compile domain of its own."""
    variables: dict[str, str] = {}
    if request and assignment:
        variables |= {
            "IPUOF_VIPU_API_HOST": request.server.host,
            "IPUOF_VIPU_API_PORT": str(request.server.port),
            PARTITION_VARIABLE: assignment.partition.name,
            "IPUOF_VIPU_API_TIMEOUT": f"{request.server.timeout:g}",
            "IPUOF_VIPU_API_GCD_ID": str(instance),
            "IPUOF_LOG_LEVEL": environ.get("IPUOF_LOG_LEVEL", "WARN"),
        }
    return variables | {TARGET_OPTIONS: _target_options(options, environ)}


def _target_options(options: LaunchOptions, environ: Mapping[str, str]) -> str:
    """JSON of strings; options that the user has set take precedence."""
    theirs = environ.get(TARGET_OPTIONS, "")
    domain = options.ipus // options.ilds if options.ilds > 1 else ILD_SIZE
    ours = {
        "ipuLinkDomainSize": str(domain),
        "ipuLinkConfiguration": "slidingWindow",
        "ipuLinkTopology": "torus" if domain == ILD_SIZE else "mesh",  # as gcl's: only a Pod64 has loop-back cables
        "gatewayMode": "true",
        "instanceSize": str(options.ipus // options.num_instances),
    }
    if options.sync_type:
        ours["syncType"] = options.sync_type
    try:
        return json.dumps(ours | dict(json.loads(theirs or "{}")), separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        return theirs  # Poplar reports what is wrong
