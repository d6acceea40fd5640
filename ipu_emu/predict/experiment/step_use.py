"""StepUse: the time of a typical step of a recorded run, in parts that add up to it, with its messages and samples.

    step   |-- compute --|-- host I/O --|-- waiting --|-- collectives --|-- other --|   begin of the next step

A typical step is the mean of the middle half of all steps by time, so that compilation and pauses do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ipu_emu.trace.findings import Finding, RunAnalysis, analyse
from ipu_emu.trace.program_profiles import read_profiles
from ipu_emu.trace.run import Process, Run
from ipu_emu.trace.self_time import self_times
from popdist_py.trace.records import Category

#: The parts of a step, in the order of pictures, and the categories of the recorder in each; "other" has the rest.
PARTS = ("compute", "host I/O", "waiting", "collectives", "other")
_PART_OF = {
    **dict.fromkeys(map(str, (Category.COMPUTE, Category.UPDATE, Category.IPU_COPIES, Category.STREAMING_MEMORY)), 0),
    **dict.fromkeys(map(str, (Category.HOST_IO, Category.DATA)), 1),
    str(Category.COLLECTIVES): 3,
}
_WAITING, _COLLECTIVES, _OTHER = map(PARTS.index, ("waiting", "collectives", "other"))


@dataclass(frozen=True)
class StepUse:
    """Seconds of a step, by part if the recorder saw it; ``source`` is what told the time.

    ``calls`` and ``nbytes``: collectives of an instance in a step. ``samples`` of all replicas, 0 if not known.
    ``steps``: how many were timed; ``findings``: what limits the run.
    """

    seconds: float
    source: str = "recorder"
    parts: Sequence[float] = (0.0,) * len(PARTS)
    calls: float = 0.0
    nbytes: float = 0.0
    samples: float = 0.0
    steps: int = 1
    findings: Sequence[Finding] = field(default=(), repr=False)

    @property
    def work(self) -> float:
        """Seconds outside collectives."""
        return self.seconds - self.number("waiting") - self.number("collectives")

    def number(self, name: str) -> float:
        """Seconds of one of ``PARTS``, or another number of the step."""
        return float(self.parts[PARTS.index(name)] if name in PARTS else getattr(self, name))


def recorded_use(run: Run, batch: int = 0) -> StepUse | None:
    """The step of a recorded run, as the mean of its instances; None if none has two steps.

    ``batch``: samples of a micro-batch, 0 if the profile of the program tells.
    """
    steps = [np.sort(process.steps["begin"]) for process in run.instances]
    if not steps or min(map(len, steps)) < 2:
        return None
    analysis = analyse(run)
    periods, parts = zip(*map(_typical, run.instances, steps), strict=True)
    mean = np.mean(parts, 0)
    begin, end = max(begins[0] for begins in steps), min(begins[-1] for begins in steps)
    calls, nbytes, waits = _messages(analysis, int(begin), int(end))
    count = float(min(map(len, steps)) - 1)
    mean[_WAITING] = min(waits / count, mean[_COLLECTIVES])
    mean[_COLLECTIVES] -= mean[_WAITING]
    return StepUse(
        float(np.mean(periods)),
        parts=tuple(map(float, mean)),
        calls=calls / count,
        nbytes=nbytes / count,
        samples=_samples(run, batch),
        steps=int(count),
        findings=analysis.findings,
    )


def steps_so_far(run: Run) -> int:
    """The steps that all instances have begun."""
    return min((len(process.steps) for process in run.instances), default=0)


def _typical(process: Process, begins: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
    """Seconds of a typical step, and of its parts on the thread that runs the program."""
    periods = np.diff(begins)
    order = np.argsort(periods)
    middle = order[len(order) // 4 : len(order) - len(order) // 4]
    spans = process.spans[process.spans["thread"] == process.main_thread]
    own, at = self_times(spans), np.searchsorted(begins, spans["begin"], "right") - 1
    parts = np.zeros(len(PARTS))
    for number in np.unique(spans["name"]):
        part = _PART_OF.get(process.trace.names[int(number)].category, _OTHER)
        parts[part] += own[(spans["name"] == number) & np.isin(at, middle)].sum()
    parts, seconds = parts / len(middle) / 1e9, float(periods[middle].mean()) / 1e9
    parts[_OTHER] = max(seconds - parts[:_OTHER].sum(), 0.0)
    return seconds, parts * seconds / parts.sum()


def _messages(analysis: RunAnalysis, begin: int, end: int) -> tuple[float, float, float]:
    """Collectives of an instance between two times: their number, bytes, and its seconds of waiting."""
    calls = nbytes = waits = 0.0
    instances = len(analysis.uses)
    for kind in analysis.collectives:
        arrived = kind.begins.max(1)  # no instance begins its next step before
        inside = (arrived >= begin) & (arrived <= end)
        part = len(kind.instances) / instances
        calls += inside.sum() * part
        nbytes += inside.sum() * part * kind.nbytes
        waits += kind.waits[inside].sum() / instances / 1e9
    return calls, nbytes, waits


def _samples(run: Run, batch: int) -> float:
    """Samples of all replicas in a step of the program with the most operations; 0 if nothing tells."""
    programs = read_profiles(run.folder, run.profiles).programs
    largest = max(programs, key=lambda entry: entry["modelled_seconds"], default={})
    own = batch * largest.get("micro_batches", 1) if batch else largest.get("samples", 0)
    return float(own * largest.get("replicas", 1))
