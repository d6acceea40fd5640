"""Analysis: what the three cases say about a program: what limits it, and what to try.

synthetic - generated    time for moving the bytes of a step
generated - real         time for preparing them
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ipu_emu.hostio.data.data_modes import DataMode
from ipu_emu.hostio.probe.program_runs import Run

__all__ = ["Gap", "advice", "doubt_of", "gap_of", "table"]

#: A difference below this share of the throughput is taken for noise.
_MATTERS = 0.05

#: Part of an instance's CPUs that a further worker needs.
_SPARE = 0.25

#: Fewer steps than these say little.
_FEW = 10

#: So many times the steps should give better numbers.
_MORE = 5

#: By so much a run may be faster than one that does less, before its numbers are called into question.
_DOUBTFUL = 0.1


@dataclass(frozen=True)
class Gap:
    """Shares of a step's time with real data, on so many instances: preparing, moving bytes, and the rest."""

    instances: int
    preparing: float
    moving: float

    @property
    def total(self) -> float:
        """The share of the time that the host costs."""
        return self.preparing + self.moving

    @property
    def limit(self) -> str:
        """One of "preparation", "bandwidth" and "compute"."""
        if max(self.preparing, self.moving) < _MATTERS:
            return "compute"
        return "preparation" if self.preparing >= self.moving else "bandwidth"


def gap_of(runs: Sequence[Run]) -> Gap:
    """From the three runs on one number of instances."""
    rate = {run.mode: run.samples_per_second for run in runs}
    seconds = {mode: 1 / max(value, 1e-12) for mode, value in rate.items()}
    preparing = (seconds["real"] - seconds["generated"]) / seconds["real"]
    moving = (seconds["generated"] - seconds["synthetic"]) / seconds["real"]
    return Gap(runs[0].instances, max(preparing, 0.0), max(moving, 0.0))


def table(runs: Sequence[Run]) -> str:
    """All numbers, one line per run."""
    head = "instances  data         samples/s     GB/s  waiting  CPUs/inst.  memory/inst."
    lines = [
        f"{run.instances:9}  {run.mode:9}  {run.samples_per_second:11,.1f}  {run.gigabytes_per_second:7.3f}  "
        f"{run.waiting:7.1%}  {run.cpus_per_instance:10.2f}  {run.memory_bytes_per_instance / 1e6:,.0f} MB"
        for run in runs
    ]
    return "\n".join([head, *lines])


def advice(runs: Sequence[Run]) -> list[str]:
    """What limits the program on each number of instances, how that changes, and what to try.

    Nothing is concluded from numbers that contradict each other.
    """
    groups = [[run for run in runs if run.instances == count] for count in sorted({run.instances for run in runs})]
    doubts = [doubt_of(group) for group in groups]
    sound = [group for group, doubt in zip(groups, doubts, strict=True) if not doubt]
    gaps = [gap_of(group) for group in sound]
    said = [*filter(None, doubts), *map(_limit, gaps)]
    short = [run for run in runs if 0 < run.steps < _FEW]
    if short:
        least = min(short, key=lambda run: run.steps)
        said.append(f"Only {least.steps} steps were timed with {least.mode} data: the program should run longer.")
    if not gaps:
        return said
    if gaps[-1].total - gaps[0].total > _MATTERS:
        said.append(
            f"The host's share grows from {gaps[0].total:.0%} on {gaps[0].instances} to {gaps[-1].total:.0%} on "
            f"{gaps[-1].instances} instances: host I/O will limit how far this program scales."
        )
    real = next(run for run in sound[-1] if run.mode == "real")
    return said + [f"Try: {hint}" for hint in _hints(gaps[-1], real)]


def doubt_of(runs: Sequence[Run]) -> str:
    """What speaks against the numbers of three runs, and what to do: less work for the host cannot take longer."""
    rates = [next(run.samples_per_second for run in runs if run.mode == mode.value) for mode in DataMode]
    if all(more <= less * (1 + _DOUBTFUL) for more, less in pairwise(rates)):
        return ""
    steps = min(run.steps for run in runs)
    timed = f" ({steps} steps were timed)" if steps else ""
    more = f"--steps {_MORE * steps}" if steps else "more --steps"
    return (
        f"{_instances(runs[0].instances)}: no verdict, because the numbers contradict each other{timed}: too few "
        f"steps, or something else uses the machine; run again with {more}."
    )


def _instances(count: int) -> str:
    return f"{count} instance{'s' * (count > 1)}"


def _limit(gap: Gap) -> str:
    count = _instances(gap.instances)
    texts = {
        "compute": f"{count}: compute is the limit; the host costs {gap.total:.0%} of the time.",
        "preparation": f"{count}: preparing data is the limit; it costs {gap.preparing:.0%} of the time.",
        "bandwidth": f"{count}: moving data is the limit; it costs {gap.moving:.0%} of the time.",
    }
    return texts[gap.limit]


def _hints(gap: Gap, real: Run) -> list[str]:
    if gap.limit == "compute":
        return ["nothing on the host's side; more instances, of more replicas, will pay as long as this holds"]
    if gap.limit == "bandwidth":
        return [
            "smaller types: uint8 images and FLOAT16, converted on the device",
            "prefetch into Streaming Memory (SessionOptions.defaultBufferingDepth), or I/O tiles (numIOTiles)",
            "more hosts, so that each moves less; outputs that are sums instead of whole predictions",
        ]
    return [
        *_ways_to_prepare(real),
        "caching: files that are prepared once and read many times (.npy is mapped, not read)",
        "compiled preparation (ipu_emu.hostio.data.image_transforms); smaller types, converted on the device",
    ]


def _ways_to_prepare(real: Run) -> list[str]:
    """More of what prepares, as far as there are CPUs for it."""
    cpus = len(os.sched_getaffinity(0)) / real.instances
    idle = cpus - real.cpus_per_instance
    if idle < _SPARE * cpus:
        return ["more hosts: the CPUs of an instance are used up"]
    free = f"{idle:.1f} of {cpus:.1f} CPUs of an instance are idle"
    if not real.workers:
        return [f"ipu_emu.hostio.Feed, whose workers prepare while the IPUs compute: {free}"]
    return [f"more workers: {real.workers} now, and {free}", "more instances, each with workers of its own"]
