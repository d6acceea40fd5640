"""Bottleneck analysis: finds what limits a program from its runs in the three data modes, and suggests what to try.

generated - synthetic    time to move the bytes of a step
real - generated         time to prepare them
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gcl.drawing.units import counted, memory
from ipu_emu.hostio.data.data_modes import DataMode
from ipu_emu.hostio.probe.program_runs import ProgramRun

#: Smaller shares of a step's time are treated as noise.
_NOISE = 0.05

#: Share of an instance's CPUs that must be idle to suggest another worker.
_IDLE_SHARE = 0.25

#: With fewer timed steps, longer runs are suggested.
_FEW_STEPS = 10

#: Factor by which to increase the steps after contradictory measurements.
_STEPS_FACTOR = 5

#: A run may be faster by this share than one that does less work, before the measurements count as contradictory.
_TOLERANCE = 0.1


@dataclass(frozen=True)
class IoOverhead:
    """The shares of a step's time with real data that are spent preparing data and moving bytes, on ``instances``."""

    instances: int
    preparing: float
    moving: float

    @property
    def total(self) -> float:
        """The share of the time that host I/O costs."""
        return self.preparing + self.moving

    @property
    def limit(self) -> str:
        """The bottleneck: "preparation", "bandwidth" or "compute"."""
        if max(self.preparing, self.moving) < _NOISE:
            return "compute"
        return "preparation" if self.preparing >= self.moving else "bandwidth"


def overhead_of(runs: Sequence[ProgramRun]) -> IoOverhead:
    """Return the overhead, from the three runs on one number of instances."""
    rate = {run.mode: run.samples_per_second for run in runs}
    seconds = {mode: 1 / max(value, 1e-12) for mode, value in rate.items()}
    preparing = (seconds["real"] - seconds["generated"]) / seconds["real"]
    moving = (seconds["generated"] - seconds["synthetic"]) / seconds["real"]
    return IoOverhead(runs[0].instances, max(preparing, 0.0), max(moving, 0.0))


def table(runs: Sequence[ProgramRun]) -> str:
    """Return all measurements as a table, one row per run."""
    head = "instances  data         samples/s     GB/s  waiting  CPUs/inst.  memory/inst."
    lines = [
        f"{run.instances:9}  {run.mode:9}  {run.samples_per_second:11,.1f}  {run.gigabytes_per_second:7.3f}  "
        f"{run.waiting:7.1%}  {run.cpus_per_instance:10.2f}  {memory(run.memory_bytes_per_instance)}"
        for run in runs
    ]
    return "\n".join([head, *lines])


def advice(runs: Sequence[ProgramRun]) -> list[str]:
    """Return what limits the program on each number of instances, how that changes, and what to try.

    Nothing is concluded from contradictory measurements.
    """
    groups = [[run for run in runs if run.instances == count] for count in sorted({run.instances for run in runs})]
    contradictions = [contradiction_in(group) for group in groups]
    sound = [group for group, doubt in zip(groups, contradictions, strict=True) if not doubt]
    overheads = [overhead_of(group) for group in sound]
    said = [*filter(None, contradictions), *map(_limit, overheads)]
    short = [run for run in runs if 0 < run.steps < _FEW_STEPS]
    if short:
        least = min(short, key=lambda run: run.steps)
        said.append(
            f"Only {counted(least.steps, 'step')} timed with {least.mode} data: run the program for more steps."
        )
    if not overheads:
        return said
    if overheads[-1].total - overheads[0].total > _NOISE:
        said.append(
            f"The share of host I/O grows from {overheads[0].total:.0%} on {overheads[0].instances} to "
            f"{overheads[-1].total:.0%} on {overheads[-1].instances} instances: it will limit scaling."
        )
    real = next(run for run in sound[-1] if run.mode == "real")
    return said + [f"Try: {hint}" for hint in _hints(overheads[-1], real)]


def contradiction_in(runs: Sequence[ProgramRun]) -> str:
    """Return how the three runs contradict each other and what to do, or '': less host work cannot take longer."""
    rates = [next(run.samples_per_second for run in runs if run.mode == mode.value) for mode in DataMode]
    if all(more <= less * (1 + _TOLERANCE) for more, less in pairwise(rates)):
        return ""
    steps = min(run.steps for run in runs)
    timed = f" ({counted(steps, 'timed step')})" if steps else ""
    more = f"--steps {_STEPS_FACTOR * steps}" if steps else "more --steps"
    return (
        f"{counted(runs[0].instances, 'instance')}: no result, because measurements contradict each other{timed}: "
        f"too few steps, or other programs are using this machine; run again with {more}."
    )


def _limit(overhead: IoOverhead) -> str:
    count = counted(overhead.instances, "instance")
    texts = {
        "compute": f"{count}: limited by compute; host I/O takes {overhead.total:.0%} of the time.",
        "preparation": f"{count}: limited by data preparation, which takes {overhead.preparing:.0%} of the time.",
        "bandwidth": f"{count}: limited by data movement, which takes {overhead.moving:.0%} of the time.",
    }
    return texts[overhead.limit]


def _hints(overhead: IoOverhead, real: ProgramRun) -> list[str]:
    if overhead.limit == "compute":
        return [
            "no change on the host; more instances or replicas increase the throughput while compute is the limit"
        ]
    if overhead.limit == "bandwidth":
        return [
            "smaller types: uint8 images and FLOAT16, converted on the device",
            "prefetch into Streaming Memory (SessionOptions.defaultBufferingDepth), or I/O tiles (numIOTiles)",
            "more hosts, so that each moves less data; summed outputs instead of all predictions",
        ]
    return [
        *_ways_to_prepare(real),
        "caching: files that are prepared once and read many times (.npy files are memory-mapped)",
        "compiled preparation (ipu_emu.hostio.data.image_transforms); smaller types, converted on the device",
    ]


def _ways_to_prepare(real: ProgramRun) -> list[str]:
    """Return ways to prepare faster, as far as idle CPUs allow."""
    cpus = len(os.sched_getaffinity(0)) / real.instances
    idle = cpus - real.cpus_per_instance
    if idle < _IDLE_SHARE * cpus:
        return ["more hosts: the CPUs of an instance are fully used"]
    free = f"{idle:.1f} of {cpus:.1f} CPUs per instance are idle"
    if not real.workers:
        return [f"ipu_emu.hostio.Feed, whose workers prepare while the IPUs compute: {free}"]
    return [f"more workers: {real.workers} now, and {free}", "more instances, each with its own workers"]
