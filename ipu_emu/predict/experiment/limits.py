"""Limits: what first limits each configuration, in words, and what to try."""

from __future__ import annotations

from dataclasses import dataclass

from gcl.drawing.units import counted
from ipu_emu.predict.experiment.fit import Fit
from ipu_emu.predict.experiment.measuring import Measurements
from ipu_emu.predict.experiment.plan import Configuration
from ipu_emu.trace.findings import Cause

#: Smaller shares of a step are no limit.
_WORTH = 0.1
#: Findings that do not limit a step; a run that was long enough is ended.
_OUTSIDE_STEPS = (Cause.DEATH, Cause.NO_STEPS, Cause.OUTSIDE)
#: What to try, in addition to the advice of the recorder's findings, which is about one run and not about scaling.
_ADVICE = {
    Cause.SMALL_MESSAGES: "merge all-reduces: one collective of all gradients",
    Cause.COMMUNICATION: "accumulate more micro-batches for each all-reduce; fewer bytes (FLOAT16)",
    Cause.HOST_IO: "prefetch, overlap host I/O with compute, more hosts; `--host-io` tells more",
    Cause.DATA: "more workers or hosts that prepare data; `--host-io` tells more",
}


@dataclass(frozen=True)
class Limit:
    """The share of a step that is lost, a sentence about it, and advice."""

    share: float
    text: str
    advice: str


def limits(runs: Measurements, fit: Fit, configuration: Configuration) -> list[Limit]:
    """What limits a configuration, the largest loss first."""
    rules = (_cores(runs, fit, configuration), *_findings(runs, configuration), _constant(runs, fit, configuration))
    return sorted((limit for limit in rules if limit and limit.share >= _WORTH), key=lambda limit: -limit.share)


def _cores(runs: Measurements, fit: Fit, configuration: Configuration) -> Limit | None:
    """More lanes than cores, if steps take longer for it."""
    lanes = getattr(configuration, fit.lanes)
    cores = runs.plan.processors(lanes, configuration.instances)
    idle = 1 - cores / lanes
    if not idle or fit.terms["t_cores"].is_zero:
        return None
    return Limit(
        idle,
        f"{counted(lanes, fit.lanes.removesuffix('s'))} share {counted(cores, 'core')}: compute cannot scale here",
        f"use at most {cores} of them on this machine, or more hosts (`--launcher '--host a,b'`)",
    )


def _findings(runs: Measurements, configuration: Configuration) -> list[Limit | None]:
    """What the recorder's findings name in the last round, and waiting that they do not."""
    use = runs.uses[configuration][-1]
    named = [
        Limit(finding.share, finding.text, _ADVICE.get(finding.cause, finding.advice))
        for finding in use.findings
        if finding.cause not in _OUTSIDE_STEPS
    ]
    share = runs.median(configuration, "waiting") / use.seconds
    text = f"{share:.0%} of a step instances wait for the slowest"
    return [*named, Limit(share, text, "equal shares of work and data, one instance per core and NUMA node")]


def _constant(runs: Measurements, fit: Fit, configuration: Configuration) -> Limit | None:
    """The constant time of a step."""
    constant = fit.terms["c"]
    share = constant.value / fit.seconds[configuration]
    if constant.is_zero:
        return None
    return Limit(
        share,
        f"{share:.0%} of a step is constant, whatever the number of samples",
        "larger steps (more batches in each run, more accumulation) and less work between them; pre-compile what is "
        "compiled there",
    )
