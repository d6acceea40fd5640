"""Pod: what instances are told of the emulated Pod: their V-IPU partition, the domains, Poplar's target options."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from poprun_py.options.option_table import ILD_SIZE, LaunchOptions
from poprun_py.plan.launch_plan import LaunchPlan
from poprun_py.vipu.partition import Decision, Request

__all__ = ["TARGET_OPTIONS", "in_pod", "pod_environment"]

TARGET_OPTIONS = "POPLAR_TARGET_OPTIONS"


def in_pod(
    job: LaunchPlan,
    options: LaunchOptions,
    *,
    environ: Mapping[str, str],
    wanted: Request | None,
    decision: Decision | None,
) -> LaunchPlan:
    """The plan with the Pod's variables for every instance; what the user sets for the instances stays."""
    instances = []
    for instance in job.instances:
        pod = pod_environment(options, instance.index, environ=environ, wanted=wanted, decision=decision)
        chosen = {name: value for name, value in instance.environment.items() if environ.get(name) != value}
        environment = {**instance.environment, **pod, **chosen}
        instances.append(dataclasses.replace(instance, environment=environment))
    return dataclasses.replace(job, instances=tuple(instances))


def pod_environment(
    options: LaunchOptions,
    instance: int,
    *,
    environ: Mapping[str, str],
    wanted: Request | None,
    decision: Decision | None,
) -> dict[str, str]:
    """The variables in PopRun's order; each instance drives a graph compile domain of its own."""
    found: dict[str, str] = {}
    if wanted and decision:
        found |= {
            "IPUOF_VIPU_API_HOST": wanted.server.host,
            "IPUOF_VIPU_API_PORT": str(wanted.server.port),
            "IPUOF_VIPU_API_PARTITION_ID": decision.partition.name,
            "IPUOF_VIPU_API_TIMEOUT": f"{wanted.server.timeout:g}",
            "IPUOF_VIPU_API_GCD_ID": str(instance),
            "IPUOF_LOG_LEVEL": environ.get("IPUOF_LOG_LEVEL", "WARN"),
        }
    return found | {TARGET_OPTIONS: _target_options(options, environ)}


def _target_options(options: LaunchOptions, environ: Mapping[str, str]) -> str:
    """JSON of strings; options that the user has set take the place of ours."""
    theirs = environ.get(TARGET_OPTIONS, "")
    domain = options.ipus // options.ilds if options.ilds > 1 else ILD_SIZE
    ours = {
        "ipuLinkDomainSize": str(domain),
        "ipuLinkConfiguration": "slidingWindow",
        "ipuLinkTopology": "torus",
        "gatewayMode": "true",
        "instanceSize": str(options.ipus // options.num_instances),
    }
    if options.sync_type:
        ours["syncType"] = options.sync_type
    try:
        return json.dumps(ours | dict(json.loads(theirs or "{}")), separators=(",", ":"))
    except (ValueError, TypeError):
        return theirs  # for Poplar to complain about
